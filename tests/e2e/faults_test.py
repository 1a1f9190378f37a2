"""Each fault that `pawl train --inject` can make, as docs/faults.md describes it: it strikes, does what it says, is struck once
in the run's life, and costs no bit. Kills of workers at every point are in train_test.py.

Standard library only. Needs PAWL_BUILD_DIR."""

import re
import unittest

from runs import SOURCE, RunCase

STEPS = 30


def points_of(who):
    text = (SOURCE / "src/base/fault.def").read_text()
    return re.findall(rf'^X\(\w+, "([^"]+)", {who}\)', text, re.M)


class Faults(RunCase):
    def values(self):
        return dict(steps=STEPS, clip="0", timeout=1)

    @property
    def want(self):
        if not hasattr(type(self), "kept"):
            type(self).kept = self.reference(**self.values())["weights_sha256"]
        return self.kept

    def inject(self, *faults, expect=0, options=(), **changes):
        """A run under these faults to its end; its report, its folder."""
        want = self.want
        spec, folder = self.spec(**{**self.values(), **changes})
        for fault in faults:
            options = (*options, "--inject", fault)
        self.run_pawl(spec, *options, expect=expect)
        noted = (folder / "injected").read_text().splitlines() if (folder / "injected").exists() else []
        self.noted = noted
        if expect == 0:
            self.assertEqual(self.report(folder)["weights_sha256"], want, faults)
        return self.report(folder) if expect == 0 else None, folder, spec, options

    def ends_and_resumes(self, *faults, expect, **changes):
        _, folder, spec, options = self.inject(*faults, expect=expect, **changes)
        self.assertEqual(sorted(self.noted), sorted(faults))
        self.run_pawl(spec, *options)
        self.assertEqual(self.report(folder)["weights_sha256"], self.want)
        self.assertEqual(sorted((folder / "injected").read_text().splitlines()), sorted(faults), "struck twice")
        return folder

    def test_a_fault_that_never_struck_is_named_at_the_end(self):
        _, folder, *_ = self.inject("slow:2@3:2", "kill:1@5:give")  # nobody asks worker 1 for its state
        missed = self.events(folder, "inject_missed")
        self.assertEqual((self.noted, [m["fault"] for m in missed]), (["slow:2@3:2"], ["kill:1@5:give"]))

    # ---- workers

    def test_a_short_stop_is_no_failure_and_a_long_one_is(self):
        report, *_ = self.inject("stop:1@5:0.2")
        self.assertEqual((self.noted, report["failures"]), (["stop:1@5:0.2"], 0))
        report, *_ = self.inject("stop:1@5:20:reduce")
        self.assertEqual((self.noted, report["failures"]), (["stop:1@5:20:reduce"], 1))

    def test_a_worker_dies_while_another_loss_is_dealt_with(self):
        for faults in (("kill:1@3", "kill:3@3", "kill:5@3", "kill:0@3:load"),
                       ("kill:1@2", "kill:3@3", "kill:0@3:fetch"), ("kill:1@2", "kill:3@3", "kill:5@3:give")):
            with self.subTest(faults=faults):
                self.inject(*faults, pipelines=3, microbatches=2, timeout=10)
                self.assertEqual(sorted(self.noted), sorted(faults))

    def test_a_slow_worker_is_not_taken_for_dead(self):
        report, *_ = self.inject("slow:2@3:20")
        self.assertEqual((self.noted, report["failures"]), (["slow:2@3:20"], 0))

    def test_a_notice_to_a_worker_is_a_leave_without_loss(self):
        values = {**self.values(), "steps": 600}  # it is heard within a beat, which is many short steps
        spec, folder = self.spec(**values)
        self.run_pawl(spec, "--inject", "term:3@5")
        report = self.report(folder)
        self.assertEqual((report["failures"], report["leaves"]), (0, 1))
        self.assertEqual(report["weights_sha256"], self.reference(**values)["weights_sha256"])

    def test_a_silence_that_ends_costs_nobody_his_place(self):
        for seconds in ("0.1", "2.5"):
            fault = f"net:1@5:{seconds}"
            report, *_ = self.inject(fault)
            self.assertEqual((self.noted, report["failures"]), ([fault], 0))

    def test_of_a_worker_that_falls_silent_for_good_it_is_found_which_one(self):
        limits = ", stall_s: 2, load_s: 10, save_s: 10, compile_s: 10, eval_s: 10"
        for rank in range(4):
            fault = f"net:{rank}@5:1000"
            report, folder, *_ = self.inject(fault, failure=limits)
            self.assertEqual((self.noted, report["failures"], report["restores"]), ([fault], 1, 0))
            self.assertEqual([e["rank"] for e in self.events(folder, "worker_lost")], [rank])

    def test_a_join_fills_the_place_of_the_dead(self):
        report, folder, *_ = self.inject("kill:2@3", "join@3:launch-go", "slow:0@1:3")
        self.assertIn("join@3:launch-go", self.noted)
        self.assertEqual(report["failures"], 1)
        self.assertEqual(len(self.events(folder, "inject")), 1)

    # ---- disks

    def test_a_disk_that_fails_for_a_while_costs_saves_alone(self):
        report, folder, *_ = self.inject("disk:0@3:ENOSPC:0.1", "disk:1@5:EIO:0.1:save-begin", "slow:0@3:4")
        self.assertEqual(len(self.noted), 3)
        self.assertEqual((report["failures"], report["last_durable_step"]), (0, STEPS))
        self.assertGreater(report["saves_failed"], 0)
        steps = [e["step"] for e in self.events(folder, "step")]
        self.assertEqual(steps, list(range(1, STEPS + 1)))

    def test_a_disk_that_fails_for_a_while_at_the_end_is_tried_until_it_is_well(self):
        self.inject("disk:1@25:EIO:1")

    def test_a_schedule_that_lacks_memory_after_a_death_gives_way_and_no_bit_changes(self):
        limits = ("--set", "parallel.schedule=gpipe", "--set", "parallel.memory=3")
        report, folder, *_ = self.inject("kill:3@9", options=limits)
        self.assertEqual(report["failures"], 1)
        self.assertRegex((folder / "log.jsonl").read_text(), r'"instead":\s*"[^"]*the memory limit is 3')

    def test_a_disk_that_stays_bad_ends_the_run_trained_but_not_saved_and_the_same_command_goes_on(self):
        folder = self.ends_and_resumes("disk:2@4:EIO", expect=74)
        self.assertEqual(max(e["step"] for e in self.events(folder, "step")), STEPS)
        failed = self.events(folder, "failed")
        self.assertIn("worker 2: save of step", failed[0]["error"])

    def test_a_disk_that_hangs_stops_no_training_and_is_told(self):
        limits = ", stall_s: 5, load_s: 5, save_s: 5, compile_s: 5, eval_s: 5"
        folder = self.ends_and_resumes("disk:1@4:stuck", expect=74, failure=limits)
        late = self.events(folder, "save_failed")[0]
        self.assertEqual(late["rank"], 1)
        self.assertIn("5 s", late["error"])
        told = [e for e in self.events(folder, "step") if e["time"] < late["time"]]
        self.assertEqual(max(e["step"] for e in told), STEPS, "training waited for the disk")
        report, *_ = self.inject("disk:1@4:stuck:0.3")
        self.assertEqual((report["failures"], report["last_durable_step"]), (0, STEPS))

    # ---- the coordinator and the launcher

    def test_the_coordinator_is_killed_at_each_of_its_points_and_costs_no_bit(self):
        points = points_of("COORD")
        self.assertGreaterEqual(len(points), 7)
        for point in points:
            with self.subTest(point=point):
                # A death makes it fence and plan, maybe while it has not heard of the step that the dead began.
                # On a takeover these points are passed, too.
                report, *_ = self.inject(f"coord@3:{point}", "kill:3@5")
                self.assertIn(f"coord@3:{point}", self.noted)
                self.assertEqual(report["coordinator_restarts"], 1)
                self.assertLessEqual(report["failures"], 1)

    def test_everything_and_the_launcher_alone_are_killed_at_each_point_and_resume(self):
        for point in points_of("LAUNCH"):
            for who in ("all", "launcher"):
                with self.subTest(point=point, who=who):
                    # Armed in a step ahead: a worker is at step 5 when step 4 is taken, or about to be.
                    died = () if point in ("launch-decided", "launch-durable") else ("kill:3@5",)
                    fault = f"kill:{who}@4:{point}"
                    _, folder, spec, options = self.inject(fault, *died, expect=-9)
                    self.assertIn(fault, self.noted)
                    durable = max([e["step"] for e in self.events(folder, "durable")], default=0)
                    self.run_pawl(spec, *options)
                    report = self.report(folder)
                    self.assertEqual(report["weights_sha256"], self.want)
                    self.assertGreaterEqual(report["resumed_from"] or 0, durable)

    def test_a_notice_to_the_launcher_saves_and_ends(self):
        spec, folder = self.spec(**self.values())
        options = ("--inject", "term:launcher@5")
        self.run_pawl(spec, *options)
        stopped = self.report(folder)
        self.assertLess(stopped["final_step"], STEPS)
        self.assertEqual(stopped["last_durable_step"], stopped["final_step"])
        self.run_pawl(spec, *options)
        self.assertEqual(self.report(folder)["weights_sha256"], self.want)

    def test_random_faults_are_survived_in_one_call(self):
        for seed in range(3):
            with self.subTest(seed=seed):
                self.inject(f"random:{seed}:15")

    def test_what_is_no_fault_is_refused_before_anything_starts(self):
        spec, folder = self.spec()
        for fault, word in (("stop:1@2", "SECONDS"), ("slow:1@2:0", "FACTOR"), ("disk:1@2:ENOTHING", "ENOTHING"),
                            ("coord@2:forward", "coord-plan"), ("join@7", "6 steps"), ("random:1:1000", "RATE"),
                            ("flood:1@2", "join")):
            with self.subTest(fault=fault):
                done = self.run_pawl(spec, "--inject", fault, expect=64)
                last = done.stderr.strip().splitlines()[-1]
                self.assertIn(fault, last)
                self.assertIn(word, last)
        done = self.run_pawl(spec, "--inject", "kill:1@2", "--inject", "kill:1@3", "--inject", "kill:1@2", expect=64)
        self.assertIn("--inject kill:1@2: given twice", done.stderr)
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
