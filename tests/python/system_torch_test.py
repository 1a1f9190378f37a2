"""The tests of Checkpointer under the PyTorch of the system's own Python (Debian's python3-torch), where that
is another one than runs this. PAWL_SYSTEM_PYTHON names another interpreter. What differs in such a PyTorch is
tested without it too: hook_test.py."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = os.environ.get("PAWL_SYSTEM_PYTHON", "/usr/bin/python3")
TESTS = ("native", "tree", "torch_state", "checkpointer", "hook", "strided", "restore", "exact", "migrate",
         "cuda")
SECONDS = 600


def version(python: str) -> str:
    words = [python, "-c", "import torch; print(torch.__version__)"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


THERE, HERE_TOO = version(PYTHON), version(sys.executable)
if not THERE or THERE == HERE_TOO:
    print(f"skipped: {PYTHON} has "
          f"{'no PyTorch' if not THERE else 'PyTorch ' + THERE + ', which runs all tests'}: "
          "apt-get install python3-torch")
    sys.exit(77)


class SystemTorchTest(unittest.TestCase):
    def test_every_test_of_the_binding_passes(self) -> None:
        for name in TESTS:
            with self.subTest(test=name, torch=THERE):
                done = subprocess.run([PYTHON, str(HERE / f"{name}_test.py")], capture_output=True, text=True,
                                      timeout=SECONDS)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
