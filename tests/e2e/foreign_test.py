"""Stages computed by a program of the user's, here one in C: under failures the weights stay the same bits.

Standard library only. Needs PAWL_BUILD_DIR."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest
from datetime import datetime, timedelta

from runs import BUILD, PAWL, TIMEOUT, RunCase

ENGINE = BUILD / "tests/e2e_api_engine"
STEPS = 6
SPEC = """
run: {{dir: {dir}, steps: {steps}, seed: 11, engine: torch}}
torch: {{module: network, options: '{options}'}}
parallel: {{pipelines: {pipelines}, stages: {stages}, microbatches: {microbatches}, batch: 2,
  schedule: {schedule}}}
optimizer: {{{optimizer}clip_norm: 0.5, sums: {sums}}}
save: {{every: {every}, in_flight: 2, keep: 2}}
failure: {{timeout_s: {timeout}{failure}}}
"""


class ForeignCase(RunCase):
    def spec(self, **changes):
        type(self).serial += 1
        values = dict(dir=self.root / f"run{self.serial}", steps=STEPS, pipelines=2, stages=2,
                      microbatches=3, schedule="pawl", options="", optimizer="", sums="exact", every=1,
                      timeout=10, failure="")
        values.update(changes)
        path = self.root / f"spec{self.serial}.yaml"
        path.write_text(SPEC.format(**values))
        return path, values["dir"]

    def run_pawl(self, spec, *options, expect=0, **environment):
        command = [PAWL, "train", spec, "--worker-program", ENGINE, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, expect, f"{options}: {done.stdout}\n{done.stderr}")
        return done

    def start(self, spec, *options):
        return super().start(spec, "--worker-program", ENGINE, *options)

    def weights(self, *options, **changes):
        spec, folder = self.spec(**changes)
        self.run_pawl(spec, *options)
        report = self.report(folder)
        self.assertEqual(report["final_step"], changes.get("steps", STEPS))
        return report["weights_sha256"]


class Weights(ForeignCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wanted = None

    def setUp(self):
        if type(self).wanted is None:
            type(self).wanted = self.weights(pipelines=1, stages=1, microbatches=6)

    def test_they_are_those_of_one_worker_in_any_cut_and_layout(self):
        for stages in (1, 2, 3, 4):
            with self.subTest(stages=stages):
                self.assertEqual(self.weights(pipelines=1, stages=stages, microbatches=6), self.wanted)
        for schedule in ("1f1b", "zb-h1", "gpipe", "decoupled"):
            with self.subTest(schedule):
                self.assertEqual(self.weights(schedule=schedule), self.wanted)

    def test_a_worker_killed_in_any_instruction_changes_no_bit(self):
        for point in ("", ":iteration", ":input-gradient", ":decided"):
            with self.subTest(point):
                options = ("--inject", f"kill:1@3{point}", "--inject", f"kill:2@5{point}")
                self.assertEqual(self.weights(*options, microbatches=2, pipelines=3), self.wanted)

    def test_losing_a_stage_the_coordinator_or_everybody_changes_no_bit(self):
        self.assertEqual(self.weights("--inject", "kill:1@3", "--inject", "kill:3@3"), self.wanted)
        self.assertEqual(self.weights("--inject", "coord@4"), self.wanted)
        for fault in ("kill:all@3", "kill:launcher@4"):
            with self.subTest(fault):
                spec, folder = self.spec()
                command = [PAWL, "train", spec, "--quiet", "--worker-program", ENGINE, "--inject", fault]
                subprocess.run(command, stderr=subprocess.DEVNULL, timeout=TIMEOUT)
                self.run_pawl(spec)
                self.assertEqual(self.report(folder)["weights_sha256"], self.wanted)

    def test_a_run_goes_on_in_another_cut(self):
        spec, folder = self.spec()
        self.run_pawl(spec, "--steps", "3")
        self.run_pawl(spec, "--set", "parallel.stages=4", "--set", "parallel.pipelines=1", "--set",
                      "parallel.microbatches=6")
        self.assertEqual(self.report(folder)["weights_sha256"], self.wanted)
        self.assertEqual(len(json.loads((folder / "engine.json").read_text())["stages"]), 4)

    def test_float_sums_train_too(self):
        self.assertNotEqual(self.weights(sums="float"), "")

    def test_a_loss_that_is_no_number_skips_its_step_only_and_is_told(self):
        spec, folder = self.spec()
        done = self.run_pawl(spec, PAWL_TEST_NAN="2")
        steps = {e["step"]: e for e in self.events(folder, "step")}
        self.assertEqual([s for s in steps if steps[s]["verdict"] == "skip"], [3])
        self.assertEqual([s for s in steps if steps[s]["loss"] is None], [3])
        self.assertEqual([s for s in steps if steps[s]["grad_norm"] is None], [3])
        self.assertEqual(self.report(folder)["steps_skipped"], 1)
        self.assertEqual([e["step"] for e in self.events(folder, "not_finite")], [3])
        self.assertIn("warning: step 3 was skipped, as its loss or a gradient is not finite", done.stderr)
        self.assertIn("warning: 1 step was skipped", done.stderr)
        self.assertIn("1 steps: loss or gradient not finite", done.stdout)

    def test_the_loss_of_a_first_or_last_step_that_was_skipped_is_not_that_of_another_one(self):
        for step, key, other in ((0, "loss_first", "loss_last"), (STEPS - 1, "loss_last", "loss_first")):
            with self.subTest(key):
                spec, folder = self.spec()
                done = self.run_pawl(spec, PAWL_TEST_NAN=str(step))
                self.assertIsNone(self.report(folder)[key])
                self.assertGreater(self.report(folder)[other], 0)
                self.assertRegex(done.stdout, r"loss +(nan -> \d|\d.\d+ -> nan)")


class Live(ForeignCase):
    STEPS = 1500

    def test_a_worker_stopped_and_one_that_joins_change_no_bit(self):
        wanted = self.weights(pipelines=1, stages=1, microbatches=4, steps=self.STEPS, every=100)
        spec, folder = self.spec(microbatches=2, steps=self.STEPS, every=100, timeout=0.5)
        run = self.start(spec)
        self.await_step(run, folder, 50)
        pid = self.pid_of(folder, 3)
        os.kill(pid, signal.SIGSTOP)
        self.await_event(run, folder, "worker_lost")
        self.await_event(run, folder, "worker_exit")
        joined = self.join(folder)
        self.await_event(run, folder, "joined")
        program = os.readlink(f"/proc/{self.pid_of(folder, 3)}/exe")
        self.assertEqual(program, str(ENGINE))  # and not pawl, which computes no such stages
        self.finish(run)
        joined.wait(TIMEOUT)
        self.assertEqual(joined.returncode, 0)
        self.assertEqual(self.report(folder)["weights_sha256"], wanted)


class Errors(ForeignCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wanted = cls("weights").weights()

    def test_an_error_of_the_code_ends_the_run_with_its_text(self):
        wanted = {"forward": "forward: ValueError: the shoe does not fit\\nat line 3",
                  "input_grad": "input_grad: it gives no reason",
                  "weight_grad": "weight_grad: out of memory: no tensor is left"}
        for function, text in wanted.items():
            with self.subTest(function):
                spec, folder = self.spec()
                done = self.run_pawl(spec, expect=1, PAWL_TEST_ERROR=f"{function}:1:3")
                last = done.stderr.splitlines()[-1]
                self.assertRegex(last, r"worker \d failed: stage 1, step 3, micro-batch \d: " + function)
                self.assertIn(text, last)
                first = next(line for line in done.stderr.splitlines() if " failed: " in line)
                self.assertEqual(last, f"pawl: error: {first}")
                self.assertLessEqual(len(self.events(folder, "worker_failed")), 4)  # each at most once
                self.run_pawl(spec)  # the code is mended
                self.assertEqual(self.report(folder)["weights_sha256"], self.wanted)

    def test_one_worker_alone_is_not_started_again_and_again(self):
        spec, folder = self.spec(pipelines=1, stages=1)
        self.run_pawl(spec, expect=1, PAWL_TEST_ERROR="forward:0:3")
        # Twice, or once more: a step may be begun before the one before is decided.
        self.assertIn(len(self.events(folder, "worker_failed")), (2, 3))

    def test_other_parameters_are_another_run(self):
        spec, folder = self.spec()
        self.run_pawl(spec, "--steps", "3")
        before = (folder / "engine.json").read_text()
        done = self.run_pawl(spec, expect=76, PAWL_TEST_WIDTH="5")
        self.assertIn("parameter '0.weight' is [5, 4] but this run began with [8, 4]", done.stderr)
        self.assertEqual((folder / "engine.json").read_text(), before)
        self.run_pawl(spec)

    def test_a_description_that_is_lost_or_damaged_is_named(self):
        spec, folder = self.spec()
        self.run_pawl(spec, "--steps", "3")
        kept = (folder / "engine.json").read_text()
        (folder / "engine.json").write_text(kept[:50])
        done = self.run_pawl(spec, expect=65)
        self.assertIn("engine.json: 50 bytes that are no JSON object", done.stderr)
        (folder / "engine.json").unlink()
        self.assertIn("engine.json is gone", self.run_pawl(spec, expect=66).stderr)
        (folder / "engine.json").write_text(kept)
        self.run_pawl(spec)

    def test_before_the_first_durable_step_the_code_may_still_change(self):
        spec, folder = self.spec(every=100)
        self.run_pawl(spec, expect=1, PAWL_TEST_ERROR="forward:0:2")
        self.run_pawl(spec, PAWL_TEST_WIDTH="5")
        self.assertFalse(self.report(folder)["resumed"])

    def test_options_and_threads_are_fixed(self):
        spec, _ = self.spec(options='{"a": 1}')
        self.run_pawl(spec, "--steps", "2")
        self.assertIn("torch.options is", self.run_pawl(spec, "--set", "torch.options=2", expect=76).stderr)
        self.assertIn("torch.threads is 2", self.run_pawl(spec, "--set", "torch.threads=2", expect=76).stderr)
        bad, folder = self.spec(options="{a: 1}")
        self.assertIn("torch.options is {a: 1}: write JSON", self.run_pawl(bad, expect=64).stderr)
        self.assertFalse(folder.exists())

    def test_the_engine_s_optimizer_goes_before_the_default_only(self):
        spec, folder = self.spec()
        self.run_pawl(spec, "--steps", "2", PAWL_TEST_LR="0.003")
        self.assertIn("lr: 0.003", json.loads((folder / "run.json").read_text())["identity"])
        self.assertEqual(json.loads((folder / "engine.json").read_text())["optimizer"]["beta2"], 0.999)
        self.assertIn("optimizer.lr is 0.004", self.run_pawl(spec, expect=76, PAWL_TEST_LR="0.004").stderr)
        self.run_pawl(spec, PAWL_TEST_LR="0.003")
        other, _ = self.spec(optimizer="lr: 0.01, ")
        done = self.run_pawl(other, expect=64, PAWL_TEST_LR="0.003")
        self.assertIn("optimizer.lr is 0.01, but 0.003 in the optimizer", done.stderr)
        self.assertIn("has lr -1", self.run_pawl(self.spec()[0], expect=64, PAWL_TEST_LR="-1").stderr)

    def test_another_number_of_samples_is_refused_at_a_resume_and_in_a_worker(self):
        spec, folder = self.spec()
        self.run_pawl(spec, "--steps", "2", PAWL_TEST_SAMPLES="7")
        self.assertEqual(json.loads((folder / "engine.json").read_text())["samples"], 7)
        told = self.run_pawl(spec, expect=76, PAWL_TEST_SAMPLES="8").stderr
        self.assertIn('torch.module "network": the data has 8 samples but this run began with 7', told)
        told = self.run_pawl(spec, expect=76, PAWL_TEST_SAMPLES="7,8").stderr
        self.assertIn("the data has 8 samples but this run began with 7", told.splitlines()[-1])
        self.run_pawl(spec, PAWL_TEST_SAMPLES="7")
        self.assertEqual(self.report(folder)["final_step"], STEPS)


class Describing(ForeignCase):
    def refused(self, text, **environment):
        spec, folder = self.spec(timeout=0.3, failure=", stall_s: 0.4, compile_s: 2")
        done = self.run_pawl(spec, expect=64, **environment)
        self.assertIn(text, done.stderr.splitlines()[-1])
        self.assertFalse(folder.exists(), "nothing is begun")
        return done.stderr

    def test_a_program_that_does_not_answer_is_an_error_of_the_spec(self):
        wanted = {"crash": "ended by signal 11 (Segmentation fault)",
                  "exit": "ended with 3 without an answer: ImportError: no shoes",
                  "empty": "ended with 0 without an answer",
                  "rubbish": "malformed control message of kind 25",
                  "huge": "control frame of 1073741823 bytes: over the limit",
                  "hang": "no answer within 2 s (failure.compile_s)"}
        for how, text in wanted.items():
            with self.subTest(how):
                shown = self.refused(text, PAWL_TEST_DESCRIBE=how)
                if how == "exit":
                    self.assertIn("Traceback: ...\n", shown)  # all of it, before our line

    def test_a_program_that_cannot_be_started_is_named(self):
        specs = self.spec()[0], RunCase.spec(self)[0]  # of a program that is asked, and of one that is not
        plain, empty, script = self.root / "plain", self.root / "empty", self.root / "script"
        for path, text, mode in ((plain, "", 0o644), (empty, "\x7fELF", 0o755), (script, "#!/nowhere/sh\n", 0o755)):
            path.write_text(text)
            path.chmod(mode)
        for program, code, why in ((self.root / "none", 66, "name a program that is there"),
                                   (self.root, 64, "is a folder"), (plain, 64, "may be executed"),
                                   (empty, 64, "ENOEXEC"), (script, 64, "the interpreter that it names")):
            for spec in specs:
                done = subprocess.run([PAWL, "train", spec, "--worker-program", program], capture_output=True,
                                      text=True, timeout=TIMEOUT)
                self.assertEqual(done.returncode, code, done.stderr)
                for word in (str(program), why):
                    self.assertIn(word, done.stderr.splitlines()[-1])
                self.assertNotIn("lost", done.stderr)

    def test_a_program_that_is_gone_ends_the_run_and_is_named(self):
        spec, folder = self.spec(steps=100000)
        program = self.root / "gone"
        shutil.copy2(ENGINE, program)
        run = RunCase.start(self, spec, "--worker-program", program)
        self.await_event(run, folder, "durable")
        program.unlink()
        os.kill(self.status(folder)["coordinator_pid"], signal.SIGKILL)
        self.assertIn(f"cannot start another coordinator: {program} cannot be started", self.finish(run, expect=66))

    def test_a_signal_while_it_is_asked_ends_it_and_says_so(self):
        def behind(run, asked):  # the launcher's comes after the end of the program
            os.kill(int(asked.name), signal.SIGTERM)
            self.await_that(run, lambda: not asked.exists())
            os.kill(run.pid, signal.SIGTERM)

        def twice(run, _):
            os.kill(run.pid, signal.SIGSTOP)  # it finds both at once
            for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGCONT):
                os.kill(run.pid, number)

        hang, slow = dict(PAWL_TEST_DESCRIBE="hang"), dict(PAWL_TEST_SLOW="100")
        self.ended_while_asked(lambda run, _: os.kill(run.pid, signal.SIGTERM), **hang)
        self.ended_while_asked(twice, **hang)
        self.ended_while_asked(lambda run, _: os.killpg(run.pid, signal.SIGINT), **slow)
        self.ended_while_asked(behind, **slow)

    def ended_while_asked(self, end, **environment):
        spec, folder = self.spec()
        command = [PAWL, "train", spec, "--worker-program", ENGINE]
        run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
                               start_new_session=True)
        self.addCleanup(self.end, run)
        asked = self.await_that(run, lambda: self.asked_of(run, "PAWL_TEST_SLOW" in environment))
        end(run, asked)
        wanted = rf"told to end \(.+\) while {ENGINE} was asked .*: nothing was begun\n"
        self.assertRegex(self.finish(run, expect=75), rf"^asking .*\npawl: error: {wanted}$")
        self.assertFalse(asked.exists() or folder.exists())

    def asked_of(self, run, opening):
        """The folder in /proc of the program that is asked (and opens its engine); null: there is none."""
        for pid in pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split():
            at = pathlib.Path(f"/proc/{pid}")
            ignored = re.search(r"SigIgn:\s*(\w+)", (at / "status").read_text()).group(1)
            opens = not opening or int(ignored, 16) >> (signal.SIGINT - 1) & 1
            if opens and b"describe" in (at / "cmdline").read_bytes().split(b"\0"):
                return at
        return None

    def test_what_it_prints_is_shown_and_does_no_harm(self):
        spec, _ = self.spec()
        done = self.run_pawl(spec, "--json", PAWL_TEST_PRINT="a module that prints")
        self.assertIn("a module that prints\n", done.stderr)
        self.assertEqual(json.loads(done.stdout)["final_step"], STEPS)

    def test_a_slow_start_is_no_hang(self):
        spec, folder = self.spec(timeout=0.3, failure=", stall_s: 0.5, compile_s: 30")
        self.run_pawl(spec, PAWL_TEST_SLOW="1.2")
        self.assertEqual(self.report(folder)["failures"], 0)

    def test_a_worker_told_to_end_while_it_starts_leaves_when_it_can(self):
        spec, folder = self.spec()
        os.environ["PAWL_TEST_SLOW"] = "0.7"
        self.addCleanup(os.environ.pop, "PAWL_TEST_SLOW")
        run = self.start(spec)
        self.await_event(run, folder, "start")
        pid = self.await_that(run, lambda: self.pid_at(folder, 3))
        os.kill(pid, signal.SIGTERM)
        self.finish(run)
        self.assertEqual(self.report(folder)["failures"], 0)
        self.assertEqual([e["rank"] for e in self.events(folder, "leaving")], [3])

    def test_of_a_worker_that_dies_while_all_start_nobody_is_said_to_go_on(self):
        spec, folder = self.spec()
        os.environ["PAWL_TEST_SLOW"] = "0.7"
        self.addCleanup(os.environ.pop, "PAWL_TEST_SLOW")
        run = self.start(spec)
        self.await_event(run, folder, "start")
        os.kill(self.await_that(run, lambda: self.pid_at(folder, 3)), signal.SIGKILL)
        self.await_event(run, folder, "worker_lost")
        run.send_signal(signal.SIGTERM)
        errors = self.finish(run, expect=75)
        self.assertRegex(errors, r"(?m)^worker 3 lost at the start: [^;]*$")

    def test_a_notice_to_all_before_the_first_step_ends_the_run_at_once_and_starts_nobody(self):
        spec, folder = self.spec(failure=", grace_s: 200")
        errors = self.notice_to_all_at_the_start(spec, folder, expect=75)
        last = errors.splitlines()[-1]
        self.assertIn("told to end before the first step was done; nothing is durable yet", last)
        self.run_pawl(spec)
        self.assertEqual(self.report(folder)["weights_sha256"], self.weights())

    def test_a_stop_before_the_first_step_is_answered_and_ends_the_run_at_once(self):
        spec, folder = self.spec(failure=", grace_s: 200")
        os.environ["PAWL_TEST_SLOW"] = "0.7"
        self.addCleanup(os.environ.pop, "PAWL_TEST_SLOW")
        run = self.start(spec)
        self.await_event(run, folder, "start")
        self.await_that(run, lambda: self.pid_at(folder, 3))
        self.assertIn("ends at once, as no step is done yet", self.command("stop", folder).stdout)
        self.assertIn("nothing is durable yet", self.finish(run, expect=75))

    def test_a_stop_with_too_few_workers_waits_for_none_that_still_starts(self):
        spec, folder = self.spec(pipelines=1, steps=100000, failure=", grace_s: 200, compile_s: 200")
        slow, program = self.root / "slow", self.root / "program"
        program.write_text(f'#!/bin/sh\n[ $1 = worker -a -e {slow} ] && exec sleep 99\nexec {ENGINE} "$@"\n')
        program.chmod(0o755)
        run = RunCase.start(self, spec, "--worker-program", program)
        self.await_event(run, folder, "durable")
        slow.touch()
        self.kill(folder, 1)
        self.await_event(run, folder, "worker_started")
        self.command("stop", folder)
        self.finish(run)
        began, ended = (datetime.fromisoformat(self.events(folder, kind)[0]["time"])
                        for kind in ("restored", "stopped"))
        self.assertLess(ended - began, timedelta(seconds=9))  # 10 are for one that has something to end

    def test_a_notice_to_all_at_a_resume_ends_the_run_where_it_was_and_starts_nobody(self):
        spec, folder = self.spec(failure=", grace_s: 200")
        self.run_pawl(spec, "--steps", "3")
        (folder / "log.jsonl").unlink()
        self.notice_to_all_at_the_start(spec, folder, expect=0)
        self.assertGreaterEqual(self.report(folder)["last_durable_step"], 3)
        self.run_pawl(spec)
        self.assertEqual(self.report(folder)["weights_sha256"], self.weights())

    def notice_to_all_at_the_start(self, spec, folder, expect):
        """While workers load their libraries. What was said on the standard error output."""
        command = [PAWL, "train", spec, "--worker-program", ENGINE]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, env=dict(os.environ, PAWL_TEST_SLOW="0.3"))
        self.addCleanup(self.end, run)
        self.await_event(run, folder, "start")
        self.await_that(run, lambda: self.pid_at(folder, 3))
        os.killpg(run.pid, signal.SIGTERM)
        errors = self.finish(run, expect)
        for kind in ("leaving", "left", "need", "worker_started"):
            self.assertEqual(self.events(folder, kind), [], errors)
        return errors

    def pid_at(self, folder, rank):
        """Of the worker's process, training or not; 0 while there is none."""
        done = self.ask_status(folder)
        workers = json.loads(done.stdout)["workers"] if done.returncode == 0 else []
        return next((w["pid"] for w in workers if w["rank"] == rank), 0)

    def test_stages_that_do_not_fit_together_are_refused(self):
        self.refused("two stages have a parameter called '0.weight'", PAWL_TEST_TWIN="1")
        spec, _ = self.spec(stages=5, pipelines=1)
        self.assertIn("use at most 4 stages", self.run_pawl(spec, expect=64).stderr)

    def test_python_without_the_package_says_what_to_install(self):
        spec, folder = self.spec()
        bare = self.root / "bare"
        bare.write_text('#!/bin/sh\nexec python3 -I -S "$@"\n')  # sees the standard library alone
        bare.chmod(0o755)
        self.no_python(spec, f"{bare} has no package pawl: pip install ./python", PAWL_PYTHON=str(bare))
        self.assertFalse(folder.exists())

    def test_an_interpreter_that_is_none_is_blamed_on_whoever_named_it(self):
        spec, folder = self.spec()
        self.no_python(spec, 'PAWL_PYTHON is "nowhere", which is not in PATH', PAWL_PYTHON="nowhere")
        self.no_python(spec, 'PAWL_PYTHON is "/dev/null", which cannot be started', PAWL_PYTHON="/dev/null")
        self.no_python(spec, 'without torch.python and PAWL_PYTHON is "python3", which is not in PATH',
                       PAWL_PYTHON="", PATH=str(self.root))
        spec.write_text(spec.read_text().replace("{module: network,", "{module: network, python: nowhere,"))
        self.no_python(spec, 'torch.python is "nowhere", which is not in PATH', PAWL_PYTHON="/dev/null")
        self.assertFalse(folder.exists())

    def no_python(self, spec, text, **environment):
        done = subprocess.run([PAWL, "train", spec], capture_output=True, text=True, timeout=TIMEOUT,
                              env=dict(os.environ, **environment))
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn(text, done.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
