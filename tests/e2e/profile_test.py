"""A real run writes a profile, and the planner plans with it.

Standard library only. PAWL_BUILD_DIR names the folder that holds the command (default: build).
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import plan_check

PAWL = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve() / "pawl"
STEPS = 8
SPEC = """
run: {{dir: {folder}/run, steps: {steps}, seed: 3}}
model: {{layers: 4, heads: 2, width: 32, context: 32, vocabulary: 256}}
data: {{path: {folder}/text.txt, format: bytes}}
parallel: {{pipelines: 2, stages: 2, microbatches: 4, batch: 2}}
failure: {{timeout_s: 5}}
"""


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pawl-profile-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text("the pawl holds the ratchet wheel that turns one way only\n" * 200)
        self.spec = self.folder / "spec.yaml"
        self.spec.write_text(SPEC.format(folder=self.folder, steps=STEPS))
        self.profile = self.folder / "profile.yaml"

    def pawl(self, *arguments, expect=0):
        done = subprocess.run([PAWL, *map(str, arguments)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def train(self, *options, expect=0):
        return self.pawl("train", self.spec, "--quiet", "--profile-out", self.profile, *options, expect=expect)

    def stages(self):
        blocks = re.split(r"^  - # stage \d+$", self.profile.read_text(), flags=re.M)[1:]
        return [{k: float(v) for k, v in re.findall(r"^    (\w+): (\S+)$", re.split(r"^\w", b, flags=re.M)[0], re.M)}
                for b in blocks]

    def plan(self, *options):
        done = self.pawl("plan", "--pipelines", 2, "--stages", 2, "--microbatches", 4, "--profile", self.profile,
                         "--policy", "recycle", "--json", *options)
        return json.loads(done.stdout)

    def test_a_run_writes_a_profile_that_plans(self):
        self.train()
        stages = self.stages()
        self.assertEqual(len(stages), 2)
        for s in stages:
            for key in ("forward", "input_grad", "weight_grad", "reduce", "step", "state_bytes", "activation_bytes"):
                self.assertGreater(s[key], 0, key)
            self.assertEqual(s["layers"], 2)
            self.assertEqual(s["input_bytes"], 2 * 32 * 32 * 4)
            self.assertGreater(s["activation_bytes"], 2 * 16 * s["input_bytes"])  # two layers of 17 and more each
        parameters = 12 * 32 * 32 * 2 + 256 * 32
        for s in stages:
            # float32 weights and two moments, a 64-bit sum and a gradient
            self.assertGreater(s["state_bytes"], 24 * parameters)
            self.assertLess(s["state_bytes"], 24 * 1.3 * parameters + 65536)
        self.assertIn("send_forward", stages[0])
        self.assertNotIn("send_backward", stages[0])
        self.assertIn("send_backward", stages[1])
        self.assertNotIn("send_forward", stages[1])

        plan = self.plan("--fail", "1:0")
        self.assertEqual(plan["unit"], "ms")
        plan_check.check_work(plan_check.Plan(plan))
        compute = sum(stages[0][k] for k in ("forward", "input_grad", "weight_grad"))
        self.assertGreaterEqual(plan["period"] * 1.000001, 8 * compute)  # one worker does all of stage 0
        self.assertEqual(plan["memory_unit"], "bytes")

    def test_a_profile_of_a_run_with_a_lost_worker_is_of_the_others(self):
        self.train("--inject", "kill:1@4")
        self.assertEqual(len(self.stages()), 2)
        self.assertGreater(self.plan()["period"], 0)

    def test_a_run_that_had_nothing_left_to_do_leaves_the_former_profile(self):
        self.train()
        before = self.profile.read_text()
        done = self.train(expect=64)
        self.assertIn("--profile-out: nothing was measured", done.stderr)
        self.assertEqual(self.profile.read_text(), before)

    def test_a_folder_that_is_not_there_is_refused_before_training(self):
        done = self.pawl("train", self.spec, "--profile-out", self.folder / "none" / "p.yaml", expect=64)
        self.assertIn("--profile-out", done.stderr)
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main()
