"""Training on emulated devices with real processes: the weights prove that every contribution came once, by its route.

Standard library only. Needs PAWL_BUILD_DIR. The profile's unit is 0 s but where time is what is tested."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PAWL = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")) / "pawl"
TIMEOUT = 120  # a guard against a hang, not a measure of speed
STEPS = 8


class Emulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="pawl-e2e-"))
        cls.serial = 0

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root, ignore_errors=True)

    def spec(self, stages, unit_s=0, cost="forward: 1, input_grad: 1, weight_grad: 1", more="", top=""):
        """A spec of `stages` stages, 12 micro-batches over its pipelines; `more` goes to parallel."""
        type(self).serial += 1
        path = self.root / f"spec{self.serial}.yaml"
        profile = self.root / f"profile{self.serial}.yaml"
        profile.write_text(f"pawl_profile: 1\nunit_s: {unit_s}\n{top}stages:\n  - {{{cost}, repeat: {stages}}}\n")
        path.write_text(f"run: {{dir: {self.root}/run{self.serial}, steps: {STEPS}, engine: emulated, seed: 3}}\n"
                        f"emulated: {{profile: {profile}, parameters: 50}}\n"
                        f"parallel: {{stages: {stages}, {more}}}\nsave: {{every: 2}}\nfailure: {{timeout_s: 3}}\n")
        return path

    def train(self, spec, *injects, code=0):
        command = [PAWL, "train", spec, "--quiet", "--report", f"{spec}.json"]
        for inject in injects:
            command += ["--inject", inject]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(pathlib.Path(f"{spec}.json").read_text()) if code == 0 else done.stderr

    def weights(self, spec, *injects, failures=None):
        report = self.train(spec, *injects)
        self.assertEqual(report["final_step"], STEPS)
        self.assertEqual(report["failures"], len(injects) if failures is None else failures)
        return report["weights_sha256"]

    def test_the_weights_are_the_same_for_every_policy_layout_and_failure(self):
        wanted = self.weights(self.spec(2, more="pipelines: 1, microbatches: 12"))
        for policy in ("gpipe", "1f1b", "zb-h1", "zb-h2", "adaptive", "decoupled", "recycle", "pawl"):
            with self.subTest(policy):
                spec = self.spec(2, more=f"pipelines: 3, microbatches: 4, schedule: {policy}")
                self.assertEqual(self.weights(spec, "kill:1@3", "kill:4@5"), wanted)
        for more in ("pipelines: 4, microbatches: 3, barrier: true", "pipelines: 2, microbatches: 6, memory: 3"):
            with self.subTest(more):
                self.assertEqual(self.weights(self.spec(2, more=more), "kill:2@4"), wanted)

    def test_thirty_two_workers_lose_four_and_end_with_the_weights_of_four(self):
        """Three pipelines of one stage, and two workers at once."""
        more = "microbatches: {}, pipelines: {}"
        wanted = self.weights(self.spec(4, more=more.format(16, 1)))
        spec = self.spec(4, more=more.format(2, 8))
        self.assertEqual(self.weights(spec, "kill:5@2", "kill:9@2", "kill:1@4", "kill:30@6"), wanted)

    def test_a_run_that_is_cut_off_resumes_to_the_same_weights(self):
        wanted = self.weights(self.spec(2, more="pipelines: 2, microbatches: 6"))
        spec = self.spec(2, more="pipelines: 2, microbatches: 6")
        command = [PAWL, "train", spec, "--quiet", "--inject", "kill:launcher@5"]
        self.assertNotEqual(subprocess.run(command, stderr=subprocess.DEVNULL, timeout=TIMEOUT).returncode, 0)
        self.assertEqual(self.weights(spec, failures=0), wanted)

    def test_times_and_sends_of_the_profile_do_not_change_the_weights(self):
        wanted = self.weights(self.spec(2, more="pipelines: 2, microbatches: 6"))
        cost = "forward: 1, input_grad: 2, weight_grad: 1, reduce: 1, step: 1, send_forward: 1, send_backward: 1"
        slow = "workers:\n  - {pipeline: 1, stage: 0, slow: 2}\n"
        spec = self.spec(2, unit_s=0.001, cost=cost, top=slow, more="pipelines: 2, microbatches: 6")
        self.assertEqual(self.weights(spec, "kill:1@4"), wanted)

    def test_no_worker_stores_more_than_its_memory_whatever_fails(self):
        """Three micro-batches beside the state of one chunk: for a second chunk there is no room."""
        wanted = self.weights(self.spec(3, more="pipelines: 1, microbatches: 12"))
        cost = "forward: 1, input_grad: 1, weight_grad: 1, state_bytes: 1000, activation_bytes: 100, weight_grad_bytes: 60"
        for limit, policy in ((1300, "pawl"), (1300, "1f1b"), (2200, "pawl"), (9000, "recycle")):
            with self.subTest(limit=limit, policy=policy):
                spec = self.spec(3, cost=cost, top=f"memory_bytes: {limit}\n",
                                 more=f"pipelines: 4, microbatches: 3, schedule: {policy}")
                self.assertEqual(self.weights(spec, "kill:1@3", "kill:6@3", "kill:11@5"), wanted)

    def test_a_profile_of_other_stages_is_refused_before_anything_starts(self):
        spec = self.spec(2, more="pipelines: 2")
        text = spec.read_text()
        spec.write_text(text.replace("stages: 2", "stages: 3"))
        self.assertIn("which has 2 stages, but parallel.stages is 3", self.train(spec, code=64))


if __name__ == "__main__":
    unittest.main()
