"""train_tiny.py from outside, and how the package finds its library."""
from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree

import minimind
from minimind._library import lib
from support import ROOT, Case, no_such

PACKAGE = ROOT / "examples" / "python"


def run(*arguments, **environment):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(PACKAGE),
                               "MINIMIND_LIBRARY": os.path.abspath(lib.path), **environment})


class Script(Case):
    def test_train_tiny_trains_plots_and_talks(self):
        done = run(PACKAGE / "train_tiny.py", "--steps", 30, "--out", self.directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [float(line.split()[3]) for line in done.stdout.splitlines() if line.startswith("step ")]
        self.assertLess(losses[-1], losses[0] / 1.5)
        root = xml.etree.ElementTree.parse(self.directory / "loss.svg").getroot()
        points = root.find("{http://www.w3.org/2000/svg}polyline").get("points").split()
        self.assertEqual(len(points), 30)
        self.assertIn("*", done.stdout)
        self.assertTrue((self.directory / "model" / "tokenizer.json").exists())


class Finding(Case):
    def test_the_environment_names_the_library(self):
        done = run("-c", "import minimind; print(minimind.load_library())")
        self.assertEqual(done.stdout.strip(), os.path.abspath(lib.path))

    def test_an_argument_goes_before_the_environment(self):
        done = run("-c", f"import minimind; print(minimind.load_library({os.path.abspath(lib.path)!r}))",
                   MINIMIND_LIBRARY=no_such("library.so"))
        self.assertEqual(done.stdout.strip(), os.path.abspath(lib.path), done.stderr)

    def test_a_library_that_is_missing_or_another_is_named(self):
        for path, said in ((no_such("library.so"), "library.so"), (__file__, "test_script"), ("libc.so.6", "mm_version")):
            done = run("-c", "import minimind; minimind.version()", MINIMIND_LIBRARY=path)
            self.assertEqual(done.returncode, 1)
            self.assertIn("LibraryNotFoundError", done.stderr)
            self.assertIn(said, done.stderr)

    def test_importing_opens_nothing(self):
        done = run("-c", "import minimind", MINIMIND_LIBRARY=no_such("library.so"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_log_is_the_librarys(self):
        told, rows = [], self.put_rows("rows.jsonl", [{"text": "a"}])
        self.addCleanup(minimind.set_log, None)

        def log(*line):
            told.append(line)

        for wanted, level in ((log, minimind.MM_LOG_INFO), (log, minimind.MM_LOG_WARNING), (None, minimind.MM_LOG_INFO)):
            minimind.set_log(wanted, level)
            index = self.put("rows.jsonl.mmidx", "no index")   # which is told of at one level only
            minimind.Dataset(rows, cache_from=0).close()
        self.assertEqual(told, [(minimind.MM_LOG_INFO, f"{index}: is damaged, it is built again")])

    def test_the_version_and_the_memory_are_the_librarys(self):
        self.assertRegex(minimind.version(), r"^\d+\.\d+\.\d+$")
        minimind.memory_reset_peak()
        usage = minimind.memory_usage()
        self.assertEqual(usage["peak"], usage["current"])
