"""Every function called wrongly, also those that are yet to come: a status that says why, and no crash."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import minimind
from minimind._library import lib
from support import Case

PROGRAM = pathlib.Path(__file__).with_name("hold_wrong.py")


class HeldWrong(Case):
    def test_every_function_survives_bad_arguments_and_says_what_is_wrong(self):
        package = pathlib.Path(minimind.__file__).parents[1]
        run = subprocess.run([sys.executable, "-B", str(PROGRAM), lib.open(), str(self.directory)], capture_output=True,
                             text=True, env={**os.environ, "PYTHONPATH": str(package)}, check=False)
        lines = run.stdout.splitlines()
        self.assertEqual(run.returncode, 0, f"it ended in {lines[-1] if lines else 'the beginning'}: {run.stderr}")
        self.assertEqual([line for line in lines if line.startswith("not ok")], [])
        self.assertEqual(lines[-1], "all were called")
