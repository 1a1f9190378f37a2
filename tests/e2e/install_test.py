#!/usr/bin/env python3
"""What `cmake --install` leaves is enough: the examples compile against it and do what the page says.

The commands of docs/checkpointing.md run as printed. Exits 77 without pkg-config or a C compiler.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("PAWL_BUILD_DIR", ROOT / "build"))


def commands_of(page):
    block = re.search(r"^## Examples$.*?^```sh$(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [line for line in block[1].splitlines() if line]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.at = Path(cls.folder.name)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.at / "inst"], check=True, capture_output=True)
        found = list((cls.at / "inst").rglob("pawl_ckpt.pc"))
        assert len(found) == 1, found
        cls.lib = found[0].parent.parent
        cls.env = dict(os.environ, PKG_CONFIG_PATH=str(found[0].parent), LD_LIBRARY_PATH=str(cls.lib))
        cls.env.pop("PAWL_START", None)
        (cls.at / "examples").symlink_to(ROOT / "examples")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_here(self, command, **options):
        done = subprocess.run(command, cwd=self.at, env=self.env, capture_output=True, text=True, check=False,
                              timeout=300, **options)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def check_library(self, name, headers, least, unwanted):
        lines = self.run_here(["nm", "-D", "--defined-only", self.lib / name]).splitlines()
        names = {line.split()[-1].split("@")[0] for line in lines}
        self.assertEqual({n for n in names if not n.startswith("pawl_")}, set())
        text = "".join((self.at / "inst/include/pawl" / h).read_text() for h in headers)
        promised = set(re.findall(r"^(?!typedef|#| \*)[a-z].*?\b(pawl_[a-z_0-9]+)\(", text, re.MULTILINE))
        self.assertGreater(len(promised), least)
        self.assertEqual(promised - names, set())
        self.assertNotRegex(self.run_here(["ldd", self.lib / name]), unwanted)

    def test_checkpointer_shows_public_functions_only_and_needs_no_network_or_blas(self):
        headers = ["ckpt.h", "inspect.h", "tune.h", "tensor.h", "memory.h", "error.h"]
        self.check_library("libpawl_ckpt.so", headers, 50, r"libuc[psm]|openblas|libz3|not found")

    def test_planner_shows_public_functions_only_and_needs_no_network(self):
        self.check_library("libpawl_plan.so", ["plan.h", "error.h"], 25, r"libuc[psm]|liburing|not found")

    def test_all_of_it_shows_public_functions_only(self):
        headers = ["train.h", "engine.h", "plan.h", "ckpt.h", "error.h"]
        self.check_library("libpawl_train.so", headers, 70, r"not found")

    def test_no_installed_header_is_left_out_here(self):
        found = {p.name for p in (self.at / "inst/include/pawl").glob("*.h")}
        self.assertEqual(found, {"ckpt.h", "inspect.h", "tune.h", "tensor.h", "memory.h", "error.h", "plan.h",
                                 "train.h", "engine.h"})

    def test_each_header_stands_alone(self):
        for header in (self.at / "inst/include/pawl").glob("*.h"):
            self.run_here(["cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-x", "c", "-I",
                           self.at / "inst/include", header])

    def test_examples_do_as_printed(self):
        for command in commands_of("docs/checkpointing.md"):
            self.run_here(command, shell=True)
        self.assertIn("begin at step 30", self.run_here(["./save_loop", "run-a", "31"]))
        self.assertIn("rank 0 of 1 begins at step 6", self.run_here(["./shards", "run-c", "1", "1"]))

    def test_planning_from_c_does_as_printed(self):
        for command in commands_of("docs/planning.md"):
            self.run_here(command, shell=True)
        printed = self.run_here(["./replan", "3", "4", "6", "1:2"])
        self.assertIn(printed, (ROOT / "docs/planning.md").read_text())

    def test_an_engine_from_c_does_as_printed(self):
        for command in commands_of("docs/engines.md"):
            printed = self.run_here(command, shell=True)
        self.assertRegex(printed, r"^step 200, loss 0\.\d+, weights [0-9a-f]{64}$")

    def test_resume_ends_with_the_same_number_however_often_it_is_killed(self):
        self.run_here("cc -o resume_k examples/resume.c $(pkg-config --cflags --libs pawl_ckpt)", shell=True)
        whole = self.run_here(["./resume_k", "unbroken", "150"])
        moments, kills = random.Random(5), 0
        while kills < 15:
            child = subprocess.Popen(["./resume_k", "broken", "150"], cwd=self.at, env=self.env,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                child.communicate(timeout=moments.uniform(0.01, 0.15))
                break
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                child.communicate()
                kills += 1
        self.assertGreater(kills, 0)
        self.assertEqual(self.run_here(["./resume_k", "broken", "150"]), whole)


if __name__ == "__main__":
    if shutil.which("pkg-config") is None or shutil.which("cc") is None or shutil.which("cmake") is None:
        sys.exit(77)
    unittest.main()
