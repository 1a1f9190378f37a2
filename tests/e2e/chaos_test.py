"""pawl chaos as people use it: a few runs of a small job under random faults keep every promise, the same number has the
same faults, and what cannot be run is said. That each broken promise is noticed is tested in tests/unit/run_chaos_test.c.

Standard library only. Needs PAWL_BUILD_DIR; PAWL_E2E=long makes many runs, PAWL_CHAOS_SEED another seed."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build"))
PAWL = BUILD / "pawl"
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LONG = os.environ.get("PAWL_E2E") == "long"
SEED = os.environ.get("PAWL_CHAOS_SEED", "1")
TIMEOUT = 3600 if LONG else 600  # a guard against a hang, not a measure of speed


class Chaos(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="pawl-chaos-test-"))

    def tearDown(self):
        shutil.rmtree(self.root, ignore_errors=True)

    def chaos(self, *options, expect=0):
        done = subprocess.run([PAWL, "chaos", "tests/e2e/chaos.yaml", "--folder", self.root, *options], cwd=SOURCE,
                              capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(done.returncode, expect, f"{options}: {done.stdout}\n{done.stderr}")
        return done

    def test_a_few_runs_keep_every_promise_and_leave_nothing_behind(self):
        runs = 100 if LONG else 5
        done = self.chaos("--seed", SEED, "--runs", str(runs), "--json")
        told = [json.loads(line) for line in done.stdout.splitlines()]
        report = told.pop()
        self.assertEqual([r["number"] for r in told], list(range(runs)))
        self.assertEqual([r["problem"] for r in told], [None] * runs)
        self.assertEqual((report["runs"], report["broken"], report["first_broken"]), (runs, 0, None))
        self.assertGreater(report["struck"], 0)
        self.assertEqual(len(report["weights_sha256"]), 64)
        self.assertEqual(list(self.root.iterdir()), [])

    def test_runs_that_once_broke_a_promise_keep_it(self):
        """14: the last step was found complete, who could tell that it is durable had died. 17: SIGTERM to the
        launcher as the run ended by itself."""
        for number in ("14", "17"):
            with self.subTest(number=number):
                self.chaos("--seed", "20261130", "--first", number, "--runs", "1")

    def test_a_run_is_repeated_by_its_number_and_kept_when_asked(self):
        done = self.chaos("--seed", SEED, "--first", "3", "--runs", "1", "--steps", "4", "--keep", "--json")
        again = self.chaos("--seed", SEED, "--first", "3", "--runs", "1", "--steps", "4")
        run = json.loads(done.stdout.splitlines()[0])
        self.assertEqual(run["number"], 3)
        self.assertTrue((pathlib.Path(run["folder"]) / "report.json").exists())
        self.assertIn(run["faults"], again.stdout)
        self.assertIn("1 of 1 runs kept every promise", again.stdout)

    def test_what_cannot_be_run_is_said_before_any_run(self):
        done = self.chaos("--runs", "1", "--set", "model.colour=3", expect=64)
        self.assertIn("colour", done.stderr)
        wrong = (("--runs", "0", "from 1 to 1000000"), ("--first", "-2", "from 0 to 1000000000"),
                 ("--minutes", "1e9", "from 0.001 to 1000000"), ("--seed", "-1", "from 0"),
                 ("--set", "failure.timeout_s=-1", "from 0.3"), ("again.yaml", "--keep", "give one spec"))
        for option, value, words in wrong:
            done = self.chaos(option, value, expect=64)
            self.assertIn(value if option == "--set" else option, done.stderr)
            self.assertIn(words, done.stderr)
        done = subprocess.run([PAWL, "chaos"], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(done.returncode, 64)
        self.assertIn("spec", done.stderr)
        self.assertEqual(list(self.root.iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
