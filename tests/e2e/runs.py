"""What tests of real runs share: a small spec, a run beside the test, its log, report and processes."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve()
PAWL = BUILD / "pawl"
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LONG = os.environ.get("PAWL_E2E") == "long"
TIMEOUT = 300  # a guard against a hang, not a measure of speed

STEPS = 6
SPEC = """
run: {{dir: {dir}, steps: {steps}, seed: 11}}
model: {{layers: 4, heads: 2, width: 16, context: 16, vocabulary: 256, tied: {tied}, dropout: 0.1}}
data: {{path: {text}, format: bytes}}
parallel: {{pipelines: {pipelines}, stages: {stages}, microbatches: {microbatches}, batch: 2, schedule: 1f1b}}
optimizer: {{lr: 0.01, clip_norm: {clip}}}
save: {{every: {every}, in_flight: 2, keep: 2}}
failure: {{timeout_s: {timeout}{failure}}}
"""


class RunCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="pawl-e2e-"))
        rng = random.Random(5)
        words = ["lorem", "ipsum", "the", "of", "ratchet", "pawl", "wheel", "turns", "and", "holds"]
        cls.text = cls.root / "text.txt"
        cls.text.write_text(" ".join(rng.choice(words) for _ in range(4000)))
        cls.serial = 0

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root, ignore_errors=True)

    def spec(self, **changes):
        type(self).serial += 1
        values = dict(dir=self.root / f"run{self.serial}", steps=STEPS, text=self.text, pipelines=2, stages=2,
                      microbatches=3, tied="true", clip="0.5", every=1, timeout=10, failure="")
        values.update(changes)
        path = self.root / f"spec{self.serial}.yaml"
        path.write_text(SPEC.format(**values))
        return path, pathlib.Path(values["dir"])

    def run_pawl(self, spec, *options, expect=0):
        done = subprocess.run([PAWL, "train", spec, "--quiet", *options], capture_output=True, text=True,
                              timeout=TIMEOUT)
        self.assertEqual(done.returncode, expect, f"{options}: {done.stdout}\n{done.stderr}")
        return done

    def report(self, folder):
        return json.loads((folder / "report.json").read_text())

    def events(self, folder, kind):
        found = []
        log = folder / "log.jsonl"
        for line in log.read_text().splitlines() if log.exists() else []:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line torn by a kill
            if event.get("event") == kind:
                found.append(event)
        return found

    def reference(self, **changes):
        spec, folder = self.spec(**changes)
        self.run_pawl(spec)
        return self.report(folder)

    # ---- a run beside the test

    def start(self, spec, *options, program=PAWL):
        run = subprocess.Popen([program, "train", spec, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
        self.addCleanup(self.end, run)
        return run

    def end(self, run):
        if run.poll() is None:
            run.kill()
        run.communicate()

    def finish(self, run, expect=0):
        _, errors = run.communicate(timeout=TIMEOUT)
        self.assertEqual(run.returncode, expect, errors)
        return errors

    def await_that(self, run, what):
        """Until `what()` is true; its value. The run must not end before."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            value = what()
            if value:
                return value
            self.assertIsNone(run.poll(), "the run ended before what was waited for")
            self.assertLess(time.monotonic(), deadline, "what was waited for did not come")
            time.sleep(0.01)

    def await_event(self, run, folder, kind, count=1):
        return self.await_that(run, lambda: self.events(folder, kind)[count - 1:])[0]

    def await_step(self, run, folder, step):
        self.await_that(run, lambda: any(e["step"] >= step for e in self.events(folder, "step")))

    def ask_status(self, folder):
        """`pawl status` as it ended; once more where a machine that stood still kept the launcher from answering."""
        deadline = time.monotonic() + TIMEOUT
        command = [PAWL, "status", folder, "--json"]
        while True:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
            if done.returncode != 75 or time.monotonic() > deadline:
                return done

    def status(self, folder):
        done = self.ask_status(folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def training(self, folder):
        """Workers that take part now; none before the run begins."""
        done = self.ask_status(folder)
        workers = json.loads(done.stdout)["workers"] if done.returncode == 0 else []
        return [w for w in workers if w["state"] == "training"]

    def pid_of(self, folder, rank):
        return next(w["pid"] for w in self.status(folder)["workers"] if w["rank"] == rank)

    def kill(self, folder, rank, how=signal.SIGKILL):
        os.kill(self.pid_of(folder, rank), how)

    def command(self, *arguments, expect=0):
        done = subprocess.run([PAWL, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(done.returncode, expect, f"{arguments}: {done.stdout}\n{done.stderr}")
        return done

    def join(self, folder, *options):
        joined = subprocess.Popen([PAWL, "join", folder, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True)
        self.addCleanup(self.end, joined)
        return joined
