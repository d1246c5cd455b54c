#!/usr/bin/env python3
"""Runs the tests of the Python package; the last line is "N passed, N failed".

    run.py [--slow] [PATTERN...]     only the tests whose names hold one of the patterns; --slow: those of slow_*.py

The environment variable MINIMIND_LIBRARY names the library, as for the package. Exits with 77 where numpy is missing.
"""
from __future__ import annotations

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "examples" / "python"), str(HERE)]
sys.dont_write_bytecode = True


class Counts(unittest.TestResult):
    """One line per test that did not pass."""

    passed = 0

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.passed += 1

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, error: object) -> None:
        super().addSubTest(test, subtest, error)
        if error is not None:
            print(f"not ok {subtest.id()}")

    def addError(self, test: unittest.TestCase, error: object) -> None:
        super().addError(test, error)
        print(f"not ok {test.id()}")

    def addFailure(self, test: unittest.TestCase, error: object) -> None:
        super().addFailure(test, error)
        print(f"not ok {test.id()}")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        print(f"# skipped: {test.id()}: {reason}")


def main() -> int:
    try:
        import numpy
    except ImportError:
        print("# skipped: python: numpy is missing")
        return 77
    loader = unittest.TestLoader()
    patterns = [f"*{word}*" for word in sys.argv[1:] if word != "--slow"]
    if patterns:
        loader.testNamePatterns = patterns
    result = Counts()
    files = "slow_*.py" if "--slow" in sys.argv[1:] else "test_*.py"
    loader.discover(str(HERE), pattern=files, top_level_dir=str(HERE)).run(result)
    for test, trace in result.errors + result.failures:
        print(f"\n{test.id()}\n{trace}")
    failed = len({str(test) for test, _ in result.errors + result.failures})
    print(f"{result.passed} passed, {failed} failed")
    return 1 if failed or result.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
