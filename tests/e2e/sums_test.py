"""optimizer.sums float: the training is that of exact sums but for rounding, survives losses, and is another run."""

import unittest

from runs import STEPS, RunCase

FLOAT = ("--set", "optimizer.sums=float")
FOREIGN = 76


class Sums(RunCase):
    def float_run(self, *options, **changes):
        spec, folder = self.spec(**changes)
        self.run_pawl(spec, *FLOAT, *options)
        return self.report(folder)

    def test_float_sums_train_as_exact_ones_but_for_rounding(self):
        want, got = self.reference(), self.float_run()
        self.assertEqual(got["final_step"], STEPS)
        self.assertAlmostEqual(got["loss_last"], want["loss_last"], delta=1e-4)
        self.assertNotEqual(got["weights_sha256"], want["weights_sha256"])

    def test_float_sums_survive_a_kill_at_each_moment_of_a_step(self):
        want = self.float_run()
        for rank, point in enumerate(("forward", "input-gradient", "reduce", "step")):
            with self.subTest(rank=rank, point=point):
                got = self.float_run("--inject", f"kill:{rank}@3:{point}", clip="0" if point == "step" else "0.5")
                self.assertEqual(got["failures"], 1)
                self.assertEqual(got["final_step"], STEPS)
                if point != "step":
                    self.assertAlmostEqual(got["loss_last"], want["loss_last"], delta=1e-4)

    def test_a_run_keeps_its_kind_of_sums(self):
        spec, folder = self.spec()
        self.run_pawl(spec, *FLOAT, "--steps", "2")
        done = self.run_pawl(spec, expect=FOREIGN)
        self.assertIn("optimizer.sums", done.stderr)
        self.run_pawl(spec, *FLOAT)
        self.assertEqual(self.report(folder)["resumed_from"], 2)


if __name__ == "__main__":
    unittest.main()
