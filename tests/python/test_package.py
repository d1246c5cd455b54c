"""The package as pip installs it, and that all of it says what it is."""
from __future__ import annotations

import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import unittest

import minimind
from support import ROOT, Case


class Installing(Case):
    @unittest.skipUnless(importlib.util.find_spec("pip") and importlib.util.find_spec("setuptools"), "no pip or setuptools")
    def test_pip_installs_it_without_a_network_or_a_compiler(self):
        source, place = self.directory / "source", self.directory / "place"
        shutil.copytree(ROOT / "examples" / "python", source, ignore=shutil.ignore_patterns("__pycache__"))
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation",
                               "--no-deps", "--target", str(place), str(source)],
                              capture_output=True, text=True, timeout=120, env={**os.environ, "CC": "/bin/false"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((place / "minimind" / "py.typed").exists())
        done = subprocess.run([sys.executable, "-c", "import minimind; print(minimind.__file__, minimind.version())"],
                              capture_output=True, text=True, timeout=60, cwd=self.directory,
                              env={**os.environ, "PYTHONPATH": str(place), "MINIMIND_LIBRARY": os.path.abspath(minimind.load_library())})
        self.assertEqual(done.returncode, 0, done.stderr)
        file, version = done.stdout.split()
        self.assertTrue(file.startswith(str(place)), file)
        self.assertEqual(version, minimind.version())


class Documentation(Case):
    """Of the names that `import minimind` brings."""

    @staticmethod
    def functions():
        for name, value in vars(minimind).items():
            if name.startswith("_") or not getattr(value, "__module__", "").startswith("minimind"):
                continue
            if inspect.isclass(value):
                yield name, value, None
                for inner, member in vars(value).items():
                    member = member.fget if isinstance(member, property) else inspect.unwrap(
                        getattr(member, "__func__", member))
                    if not inner.startswith("_") and inspect.isfunction(member):
                        yield f"{name}.{inner}", member, member
            elif inspect.isfunction(value):
                yield name, value, value

    def test_everything_has_a_docstring(self):
        silent = [name for name, value, _ in self.functions() if not inspect.getdoc(value)]
        self.assertEqual(silent, [])

    def test_everything_has_type_hints(self):
        bare = []
        for name, _, function in self.functions():
            if function is None:
                continue
            signature = inspect.signature(function)
            arguments = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
            if signature.return_annotation is inspect.Signature.empty or any(
                    p.annotation is inspect.Parameter.empty for p in arguments):
                bare.append(name)
        self.assertEqual(bare, [])

    def test_there_is_something_to_look_at(self):
        self.assertGreater(sum(1 for _ in self.functions()), 80)
