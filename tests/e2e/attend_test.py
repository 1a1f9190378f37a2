"""A run that goes on while machines come, go, hang and die: its final weights are those of the undisturbed run.

Standard library only. Needs PAWL_BUILD_DIR."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest

from runs import PAWL, SOURCE, TIMEOUT, RunCase

OPEN = 100000  # steps: a run that lasts until what is waited for has come, and is then told to end


def coordinator_points():
    text = (SOURCE / "src/base/fault.def").read_text()
    return re.findall(r'^X\(\w+, "([^"]+)", COORD\)', text, re.M)


class Attend(RunCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wanted = {}

    def want(self, **changes):
        """The report of the undisturbed run of these settings."""
        key = tuple(sorted(changes.items()))
        if key not in self.wanted:
            self.wanted[key] = self.reference(**changes)
        return self.wanted[key]

    def same_weights(self, folder, **changes):
        got = self.report(folder)
        self.assertEqual(got["final_step"], self.want(**changes)["final_step"])
        self.assertEqual(got["weights_sha256"], self.want(**changes)["weights_sha256"])
        return got

    def end_and_compare(self, run, folder, told=False, **changes):
        """The report of a run that is told to end; its weights are those of one that nothing happened to."""
        if not told:
            run.send_signal(signal.SIGTERM)
        self.errors = self.finish(run)
        got = self.report(folder)
        want = self.reference(steps=got["final_step"], **changes)
        self.assertEqual(got["weights_sha256"], want["weights_sha256"], self.errors)
        return got

    def go_on_and_compare(self, spec, folder):
        """A run that was ended goes on with the same command, some steps further."""
        steps = self.report(folder)["final_step"] + 5
        self.run_pawl(spec, "--steps", str(steps))
        return self.same_weights(folder, steps=steps)

    # ---- the coordinator

    def test_a_coordinator_killed_at_any_moment_is_replaced_and_costs_no_bits(self):
        points = coordinator_points()
        self.assertGreaterEqual(len(points), 5)
        for point in points:
            with self.subTest(point=point):
                spec, folder = self.spec()
                # What is passed only at a fence needs one.
                self.run_pawl(spec, "--inject", f"coord@3:{point}", "--inject", "kill:1@4")
                got = self.same_weights(folder)
                self.assertEqual(got["coordinator_restarts"], 1)
                self.assertEqual(got["failures"], 1)

    def test_a_coordinator_and_a_worker_killed_at_once_cost_no_bits(self):
        for rank in range(4):
            with self.subTest(rank=rank):
                spec, folder = self.spec()
                self.run_pawl(spec, "--inject", "coord@3", "--inject", f"kill:{rank}@4:iteration")
                got = self.same_weights(folder)
                self.assertEqual((got["coordinator_restarts"], got["failures"]), (1, 1))

    def test_a_program_that_is_replaced_while_it_trains_goes_on_as_it_was(self):
        program = self.root / "bin/pawl"
        program.parent.mkdir()
        shutil.copy2(PAWL, program)
        spec, folder = self.spec(steps=OPEN, failure=", respawn: 1")
        run = self.start(spec, "--quiet", program=program)
        self.await_step(run, folder, 3)
        program.unlink()
        program.write_text("#!/bin/sh\nexit 9\n")
        program.chmod(0o755)
        os.kill(self.status(folder)["coordinator_pid"], signal.SIGKILL)
        self.kill(folder, 1)
        self.await_event(run, folder, "joined")
        for pid in (self.status(folder)["coordinator_pid"], self.pid_of(folder, 1)):
            process = pathlib.Path("/proc", str(pid))
            self.assertEqual((process / "cmdline").read_bytes().split(b"\0")[0], bytes(program))
            self.assertEqual((process / "comm").read_text(), "pawl\n")
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["coordinator_restarts"], got["joins"]), (1, 1))

    def test_a_coordinator_that_is_stopped_is_replaced_after_the_timeout(self):
        spec, folder = self.spec(steps=OPEN, timeout=4)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 3)
        os.kill(self.status(folder)["coordinator_pid"], signal.SIGSTOP)
        self.await_event(run, folder, "coordinator_lost")
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["coordinator_restarts"], got["failures"]), (1, 0))
        self.assertEqual(len(self.events(folder, "coordinator_silent")), 1)

    def test_what_a_dying_coordinator_was_told_its_successor_obeys(self):
        spec, folder = self.spec(steps=OPEN, timeout=4)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 3)
        os.kill(self.status(folder)["coordinator_pid"], signal.SIGSTOP)
        kinds, text = self.drain_by_hand(folder, 1)  # returns when the worker has left
        self.assertEqual(kinds, [6, 5])  # told at once that it takes time (WAIT), then how it went (REPLY)
        self.assertIn(b"worker 1 has left", text)
        os.kill(self.status(folder)["coordinator_pid"], signal.SIGSTOP)
        self.command("stop", folder)
        got = self.end_and_compare(run, folder, told=True)
        self.assertEqual((got["coordinator_restarts"], got["leaves"], got["failures"]), (2, 1, 0))

    def drain_by_hand(self, folder, rank):
        """Kinds of the frames that the launcher answers with, and the last one (docs/formats/control.md)."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(TIMEOUT)
            asking.connect(str(folder / "admin.sock"))
            asking.sendall(struct.pack("<IBI", 5, 2, rank))
            stream, kinds, frame = asking.makefile("rb"), [], b""
            while head := stream.read(4):
                frame = stream.read(*struct.unpack("<I", head))
                kinds.append(frame[0])
        return kinds, frame

    def test_coordinators_that_die_again_and_again_without_a_step_end_the_run_and_it_says_so(self):
        spec, folder = self.spec(steps=100000, timeout=60)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 1)
        state = self.status(folder)
        for worker in state["workers"]:  # nobody computes: no step
            os.kill(worker["pid"], signal.SIGSTOP)
        killed = set()
        while run.poll() is None:
            try:
                pid = self.status(folder)["coordinator_pid"]
            except AssertionError:
                break  # it has ended
            if pid != 0 and pid not in killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        errors = self.finish(run, expect=70)
        self.assertIn("coordinator", errors.strip().splitlines()[-1])
        self.assertIn("without a step in between", errors.strip().splitlines()[-1])

    def test_a_launcher_that_was_stopped_takes_nobody_for_dead(self):
        spec, folder = self.spec(steps=OPEN, timeout=4)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 3)
        silent = socket.socket(socket.AF_UNIX)
        self.addCleanup(silent.close)
        silent.settimeout(TIMEOUT)
        silent.connect(str(folder / "admin.sock"))
        self.status(folder)  # who connected before has been accepted
        run.send_signal(signal.SIGSTOP)
        time.sleep(6)  # longer than the timeout and than a connection may be silent: that is what is tested
        run.send_signal(signal.SIGCONT)
        self.assertIn(b"ask again", silent.recv(1000))
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["failures"], got["coordinator_restarts"]), (0, 0))

    # ---- joins

    def test_a_worker_that_joins_after_a_death_takes_part_again(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet", "--inject", "kill:1@5")
        self.await_event(run, folder, "worker_lost")
        joined = self.join(folder)
        self.await_event(run, folder, "joined")
        self.await_that(run, lambda: any(e["live"] == 4 for e in self.events(folder, "step")[-1:]))
        got = self.end_and_compare(run, folder)
        self.assertEqual(joined.wait(TIMEOUT), 0)
        self.assertEqual((got["failures"], got["joins"]), (1, 1))

    def test_a_run_grows_beyond_its_start_and_the_weights_stay_the_same(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        joined = self.join(folder, "-n", "2")
        self.await_event(run, folder, "joined", 2)
        pipelines = self.await_that(run, lambda: {w["pipeline"] for w in self.training(folder)})
        got = self.end_and_compare(run, folder)
        self.assertEqual(joined.wait(TIMEOUT), 0)
        self.assertEqual(got["joins"], 2)
        self.assertIn(2, pipelines, "no third pipeline was made")

    def test_a_join_beyond_the_places_is_refused(self):
        spec, folder = self.spec(steps=100000)
        run = self.start(spec, "--quiet", "--set", "parallel.pipelines_max=2")
        self.await_step(run, folder, 1)
        done = self.command("join", folder, expect=75)
        self.assertIn("all 4 places are taken", done.stderr.splitlines()[-1])
        run.send_signal(signal.SIGTERM)
        self.finish(run)

    def test_a_joined_worker_that_dies_is_done_without(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        joined = self.join(folder, "-n", "2")
        self.await_event(run, folder, "joined", 2)
        self.kill(folder, 4)
        self.await_event(run, folder, "worker_lost")
        got = self.end_and_compare(run, folder)
        self.assertNotEqual(joined.wait(TIMEOUT), 0)
        self.assertEqual(got["failures"], 1)

    def test_a_worker_that_dies_as_it_joins_costs_no_bits(self):
        fault = "kill:1@4:prepare"
        spec, folder = self.spec(steps=OPEN, clip="0")  # no step is undone: who joins has to prepare
        run = self.start(spec, "--quiet", "--inject", "kill:1@3", "--inject", fault)
        self.await_event(run, folder, "worker_lost")
        joined = self.join(folder)
        self.await_event(run, folder, "worker_exit", 2)
        self.assertIn(fault, (folder / "injected").read_text().split())
        got = self.end_and_compare(run, folder, clip="0")
        self.assertNotEqual(joined.wait(TIMEOUT), 0)
        self.assertEqual((got["failures"], got["joins"]), (2, 0))

    def test_what_joins_a_folder_without_a_run_is_told_so(self):
        for command in (["join"], ["stop"], ["status"], ["drain"]):
            arguments = [*command, self.root] + (["3"] if command == ["drain"] else [])
            done = self.command(*arguments, expect=66)
            self.assertIn(f"no run is going on in {self.root}", done.stderr.splitlines()[-1])

    # ---- leaves

    def test_a_drained_worker_leaves_and_nothing_is_lost(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        done = self.command("drain", folder, 1)
        self.assertIn("worker 1 has left", done.stdout)
        self.assertNotIn(1, [w["rank"] for w in self.status(folder)["workers"]])
        self.assertIn("no worker 1", self.command("drain", folder, 1, expect=64).stderr)
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["leaves"], got["failures"], got["iterations_redone"]), (1, 0, 0))
        self.assertEqual([(e["rank"], e.get("status")) for e in self.events(folder, "worker_exit")], [(1, 0)])

    def test_a_drained_worker_that_dies_before_it_has_left_is_told(self):
        spec, folder = self.spec(steps=OPEN, timeout=60)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        self.kill(folder, 1, signal.SIGSTOP)  # so it does not leave
        drained = subprocess.Popen([PAWL, "drain", folder, "1"], stderr=subprocess.PIPE, text=True)
        self.await_event(run, folder, "drain")
        self.kill(folder, 1)
        _, errors = drained.communicate(timeout=TIMEOUT)
        self.assertEqual((drained.returncode, errors), (70, "pawl: error: worker 1 died before it left\n"))
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["leaves"], got["failures"]), (0, 1))

    def test_sigterm_to_a_worker_is_a_leave(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        os.kill(self.status(folder)["coordinator_pid"], signal.SIGTERM)  # a notice is not its to answer
        self.kill(folder, 2, signal.SIGTERM)
        self.await_event(run, folder, "left")
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["leaves"], got["failures"], got["coordinator_restarts"]), (1, 0, 0))

    def test_a_notice_to_a_joined_worker_is_a_leave_and_its_command_ends_well(self):
        for notice in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(notice.name):
                self.notice_to_joined(notice)

    def notice_to_joined(self, notice):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet", "--inject", "kill:1@3")
        self.await_event(run, folder, "worker_lost")
        joined = self.join(folder)
        self.await_event(run, folder, "joined")
        joined.send_signal(notice)
        self.assertEqual(joined.wait(TIMEOUT), 0)
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["joins"], got["leaves"], got["failures"]), (1, 1, 1))

    def test_a_worker_that_cannot_be_missed_takes_the_run_along_saved(self):
        spec, folder = self.spec(pipelines=1, microbatches=6, steps=100000)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        self.command("drain", folder, 0)
        self.finish(run)
        got = self.report(folder)
        self.assertLess(got["final_step"], 100000)
        self.assertEqual(got["last_durable_step"], got["final_step"])

    # ---- the end on request

    def test_the_stop_file_saves_and_ends_and_is_removed(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        (folder / "STOP").touch()
        self.finish(run)
        stopped = self.report(folder)
        self.assertLess(stopped["final_step"], OPEN)
        self.assertEqual(stopped["last_durable_step"], stopped["final_step"])
        self.assertFalse((folder / "STOP").exists())
        self.go_on_and_compare(spec, folder)

    def test_a_stop_while_a_stage_is_lost_ends_at_the_durable_step_and_makes_every_store_durable(self):
        spec, folder = self.spec(steps=OPEN, pipelines=1, microbatches=6, timeout=4, failure=", restarts: 1")
        run = self.start(spec, "--quiet")
        self.await_event(run, folder, "durable")
        coordinator = self.status(folder)["coordinator_pid"]
        os.kill(coordinator, signal.SIGSTOP)
        self.kill(folder, 1)
        before = {log: log.stat().st_ino for log in folder.glob("store/rank-0000/commit-*.log")}
        self.command("stop", folder)
        os.kill(coordinator, signal.SIGCONT)
        self.finish(run)
        got = self.report(folder)
        self.assertEqual(got["final_step"], got["last_durable_step"])
        self.assertEqual(len(self.events(folder, "restored")), 1)
        self.assertGreater(len(before), 0)
        for log, inode in before.items():  # what makes it durable is a copy: the worker that lived wrote none
            self.assertNotEqual(log.stat().st_ino, inode, log)
        self.go_on_and_compare(spec, folder)

    def test_a_stop_while_a_stage_is_lost_and_nothing_durable_starts_nobody_and_ends_at_once(self):
        spec, folder = self.spec(steps=OPEN, every=0, pipelines=1, microbatches=6, timeout=100,
                                 failure=", grace_s: 200")
        run = self.start(spec)
        self.await_step(run, folder, 2)
        coordinator = self.status(folder)["coordinator_pid"]
        os.kill(coordinator, signal.SIGSTOP)
        self.kill(folder, 1)
        self.command("stop", folder)
        os.kill(coordinator, signal.SIGCONT)
        errors = self.finish(run, expect=75)
        self.assertIn("none is started, as the run is ending", errors)
        last = errors.splitlines()[-1]
        self.assertIn("too few workers are left to save the next step; nothing is durable yet", last)
        self.assertEqual([e["waits_for"] for e in self.events(folder, "need")], ["nothing"])
        self.assertEqual(self.events(folder, "worker_started"), [])

    def test_the_stop_command_does_the_same(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 2)
        self.command("stop", folder)
        self.finish(run)
        self.assertEqual(self.report(folder)["last_durable_step"], self.report(folder)["final_step"])
        self.go_on_and_compare(spec, folder)

    def test_a_notice_to_every_process_at_once_saves_and_ends(self):
        for notices in ((signal.SIGTERM,), (signal.SIGUSR1, signal.SIGTERM)):  # two within a second are one
            with self.subTest(notices=notices):
                self.notice_to_all(notices)

    def notice_to_all(self, notices):
        spec, folder = self.spec(steps=100000)
        run = subprocess.Popen([PAWL, "train", spec, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
        self.addCleanup(self.end, run)
        self.await_step(run, folder, 2)
        for notice in notices:
            os.killpg(run.pid, notice)
        self.finish(run)
        got = self.report(folder)
        self.assertEqual(got["last_durable_step"], got["final_step"])
        self.assertEqual((got["failures"], got["coordinator_restarts"]), (0, 0))
        for kind in ("leaving", "left", "need", "worker_started"):
            self.assertEqual(self.events(folder, kind), [])

    def test_a_grace_that_cannot_hold_a_save_is_told_beforehand_and_leaves_the_newest_durable_step(self):
        spec, folder = self.spec(steps=OPEN, timeout=60, failure=", grace_s: 0.05")
        run = self.start(spec, "--inject", "slow:0@5:3000")
        self.await_event(run, folder, "grace_too_short")
        run.send_signal(signal.SIGTERM)
        errors = self.finish(run, expect=75)
        self.assertIn("failure.grace_s is 0.05, but an iteration takes", errors)
        last = errors.strip().splitlines()[-1]
        self.assertRegex(last, r"failure.grace_s\) is over; the newest durable step is \d+$")
        got = self.go_on_and_compare(spec, folder)
        self.assertGreaterEqual(got["resumed_from"], int(last.split()[-1]))

    # ---- hangs

    def test_a_stopped_worker_leaves_a_file_that_says_what_everybody_was_doing(self):
        spec, folder = self.spec(steps=OPEN, timeout=4)
        run = self.start(spec)
        self.await_step(run, folder, 3)
        pid = self.pid_of(folder, 2)
        os.kill(pid, signal.SIGSTOP)
        event = self.await_event(run, folder, "evidence")
        self.assertEqual(self.end_and_compare(run, folder)["failures"], 1)
        self.assertIn(f"what every worker was doing: {folder}/evidence-1.txt", self.errors)
        text = pathlib.Path(event["file"]).read_text()
        for rank in range(4):
            self.assertRegex(text, rf"(?m)^worker {rank}: pid \d+, pipeline \d, stage \d, phase step, ")
        part = text[text.index("worker 2: pid"):text.index("worker 3: pid")]
        self.assertIn(f"pid {pid},", part)
        self.assertIn("state T", part)
        self.assertIn("it was stopped", part)
        others = text.replace(part, "")
        self.assertGreaterEqual(others.count("last instruction: "), 6)  # from outside, and their own word
        self.assertGreaterEqual(others.count("(main)"), 3)
        self.assertFalse((folder / ".stacks").exists())

    def test_a_slow_worker_is_not_lost_but_planned_for(self):
        spec, folder = self.spec(steps=OPEN, clip="0")
        run = self.start(spec, "--quiet", "--set", "parallel.schedule=pawl", "--inject", "slow:2@3:20")
        self.await_that(run, lambda: any(e["why"] == "better plan" for e in self.events(folder, "fence")))
        got = self.end_and_compare(run, folder, clip="0")
        self.assertGreater(got["replans"], 0)
        self.assertEqual((got["failures"], got["leaves"]), (0, 0))

    def test_where_the_only_replica_of_a_stage_hangs_another_worker_is_started_in_its_place(self):
        shape = dict(pipelines=1, microbatches=6, timeout=1)
        for respawn in (0, 1):
            spec, folder = self.spec(steps=OPEN, failure=f", wait_s: 200, respawn: {respawn}", **shape)
            run = self.start(spec, "--inject", "stop:1@5:1000")
            self.await_event(run, folder, "worker_exit")
            self.await_event(run, folder, "restored")
            self.await_step(run, folder, self.status(folder)["step"] + 100)
            got = self.end_and_compare(run, folder, **shape)
            self.assertEqual((got["restores"], got["failures"]), (1, 1))
            self.assertEqual(len(self.events(folder, "worker_started")), 1, "started twice for one that hung")
            self.assertIn("too few workers are left", self.errors)

    def test_where_every_worker_hangs_at_once_others_are_started(self):
        spec, folder = self.spec(steps=OPEN, timeout=1, failure=", wait_s: 200")
        run = self.start(spec, "--quiet")
        self.await_event(run, folder, "durable")
        for worker in self.status(folder)["workers"]:
            os.kill(worker["pid"], signal.SIGSTOP)
        self.await_event(run, folder, "restored")
        self.await_that(run, lambda: self.events(folder, "step")[-1]["live"] == 4)
        got = self.end_and_compare(run, folder, timeout=1)
        self.assertEqual(got["failures"], 4)

    # ---- a stage without a replica

    def test_a_damaged_newest_step_is_walked_back_from_and_nobody_fights_over_a_store(self):
        spec, folder = self.spec(steps=8)
        self.run_pawl(spec)
        shutil.copytree(folder, self.root / "whole")
        for _ in range(5):
            shutil.rmtree(folder)
            shutil.copytree(self.root / "whole", folder)
            for slot in self.newest_slots(folder):
                self.flip(slot)
            self.run_pawl(spec, "--steps", "12")
            self.assertEqual([e["step"] for e in self.events(folder, "walk_back")], [8])
            self.assertEqual({e["code"] for e in self.events(folder, "worker_failed")}, {"CORRUPT"})
            self.same_weights(folder, steps=12)

    def test_a_run_that_has_no_worker_and_nothing_durable_ends_at_once_when_told_to(self):
        for _ in range(50):
            spec, folder = self.spec(steps=OPEN, every=0, pipelines=1, microbatches=6,
                                     failure=", restarts: 1, wait_s: 200, grace_s: 200")
            run = self.start(spec)
            self.await_step(run, folder, 1)
            if self.kill_until_it_waits(run, folder):
                break
            self.finish(run, expect=70)  # those that were started had begun: one return too many
        self.await_that(run, lambda: any(e["waits_for"] == "join" for e in self.events(folder, "need")))
        self.assertIn("waiting for workers: too few are left", self.command("status", folder).stdout)
        run.send_signal(signal.SIGTERM)
        errors = self.finish(run, expect=75)
        self.assertRegex(errors, r"waiting 200 s for pawl join")
        last = errors.splitlines()[-1]
        self.assertIn("too few workers are left to save the next step; nothing is durable yet", last)

    def kill_until_it_waits(self, run, folder):
        """Whoever is there, again and again. False: the run has ended."""
        while run.poll() is None:
            asked = self.ask_status(folder)
            if asked.returncode != 0:
                run.wait(timeout=TIMEOUT)
                return False
            now = json.loads(asked.stdout)
            if now["waiting"] and not now["workers"] and len(self.events(folder, "worker_exit")) == 4:
                return True
            for worker in now["workers"]:
                try:
                    os.kill(worker["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    pass  # by the round before
        return False

    def newest_slots(self, folder):
        info = json.loads(self.command("ckpt", "info", folder, "--json").stdout)
        return [pathlib.Path(p["store"]) / p["file"] for p in info["parts"]]

    def flip(self, slot):
        with open(slot, "r+b") as f:
            f.seek(-64, os.SEEK_END)
            byte = f.read(1)
            f.seek(-64, os.SEEK_END)
            f.write(bytes([byte[0] ^ 1]))

    def test_a_stage_wiped_out_is_restored_and_what_was_lost_is_said(self):
        spec, folder = self.spec(steps=90, every=40)
        run = self.start(spec, "--inject", "kill:1@50", "--inject", "kill:3@50")
        errors = self.finish(run)
        got = self.same_weights(folder, steps=90)
        self.assertEqual((got["restores"], got["failures"]), (1, 2))
        event = self.events(folder, "restored")[0]
        self.assertEqual(got["lost_iterations"], event["lost_iterations"])
        self.assertGreater(got["lost_seconds"], 0)
        self.assertRegex(errors, rf"restored step {event['step']}: {event['lost_iterations']} iterations \(\d+\.\d s of "
                                 r"work\) are done again")

    def test_every_worker_killed_at_once_is_started_again_from_the_newest_durable_step(self):
        spec, folder = self.spec(steps=OPEN)
        run = self.start(spec, "--quiet")
        self.await_event(run, folder, "durable")
        for worker in self.status(folder)["workers"]:
            os.kill(worker["pid"], signal.SIGKILL)
        self.await_event(run, folder, "restored")
        self.await_that(run, lambda: self.events(folder, "step")[-1]["live"] == 4)
        got = self.end_and_compare(run, folder)
        self.assertEqual((got["restores"], got["failures"]), (1, 4))

    def test_a_stage_wiped_out_again_and_again_without_a_save_ends_and_says_so(self):
        spec, folder = self.spec(steps=100000, every=0, pipelines=1, microbatches=6, failure=", restarts: 2")
        run = self.start(spec, "--quiet")
        for times in range(1, 4):
            victim = self.await_that(run, lambda: [w["pid"] for w in self.training(folder) if w["stage"] == 1])
            os.kill(victim[0], signal.SIGKILL)
            if times < 3:
                self.await_event(run, folder, "restored", times)
        errors = self.finish(run, expect=70)
        self.assertIn("failure.restarts", errors.strip().splitlines()[-1])
        self.assertIn("2 returns to a durable step", errors.strip().splitlines()[-1])

    def await_durable(self, run, folder, step):
        self.await_that(run, lambda: any(e["step"] >= step for e in self.events(folder, "durable")))

    def test_where_too_few_are_left_for_every_stage_workers_are_started(self):
        spec, folder = self.spec(steps=OPEN, pipelines=1, microbatches=6, failure=", restarts: 1")
        run = self.start(spec, "--quiet")
        for times in range(1, 4):  # more than one return allows, but for the durable steps in between
            there = self.await_that(run, lambda: [w for w in self.training(folder) if w["stage"] == 1])
            os.kill(there[0]["pid"], signal.SIGKILL)
            self.await_event(run, folder, "restored", times)
            self.await_durable(run, folder, self.events(folder, "restored")[-1]["step"] + 1)
        self.end_and_compare(run, folder, pipelines=1, microbatches=6)

    def exhaust_starts(self, spec, folder):
        """A run of one pipeline that has lost a stage; the program of those that are started in its place ends at once."""
        gone = self.root / f"gone-{folder.name}"
        program = self.root / f"pawl-of-{folder.name}"
        program.write_text(f'#!/bin/sh\n[ ! -e {gone} ] || exit 1\nexec {PAWL} "$@"\n')
        program.chmod(0o755)
        run = self.start(spec, "--worker-program", program)
        self.await_event(run, folder, "durable")
        gone.touch()
        self.kill(folder, 1)
        return run

    def test_where_none_may_be_started_the_run_waits_for_a_join(self):
        shape = dict(pipelines=1, microbatches=6)
        spec, folder = self.spec(steps=OPEN, failure=", restarts: 1, wait_s: 600", **shape)
        run = self.exhaust_starts(spec, folder)
        self.await_that(run, lambda: any(e["waits_for"] == "join" for e in self.events(folder, "need")))
        self.assertTrue(self.status(folder)["waiting"])
        self.assertEqual(len(self.events(folder, "worker_started")), 2, "as many as one return begins with")
        joined = self.join(folder)
        self.await_step(run, folder, self.events(folder, "step")[-1]["step"] + 1)
        errors = self.end_and_compare(run, folder, **shape) and self.errors
        self.assertEqual(joined.wait(TIMEOUT), 0)
        self.assertIn(f"waiting 600 s for pawl join {folder}", errors)

    def test_where_nobody_joins_the_run_ends_at_its_durable_step_and_the_same_command_goes_on(self):
        shape = dict(pipelines=1, microbatches=6)
        spec, folder = self.spec(steps=OPEN, failure=", restarts: 1, wait_s: 0.2", **shape)
        errors = self.finish(self.exhaust_starts(spec, folder), expect=70)
        self.assertIn("waiting 0.2 s for pawl join", errors)
        self.assertIn("none joined in failure.wait_s", errors.strip().splitlines()[-1])
        steps = self.report(folder)["last_durable_step"] + 5
        self.run_pawl(spec, "--steps", str(steps))
        self.same_weights(folder, steps=steps, **shape)

    # ---- respawn

    def test_a_dead_worker_is_started_again_as_often_as_is_allowed(self):
        spec, folder = self.spec(steps=OPEN, failure=", respawn: 1")
        run = self.start(spec, "--quiet", "--inject", "kill:1@5", "--set", "parallel.pipelines_max=2")
        self.await_event(run, folder, "joined")
        self.kill(folder, 1)
        self.await_event(run, folder, "held_off")
        joined = self.join(folder)  # into the place that nobody else is started in
        self.await_event(run, folder, "joined", 2)
        got = self.end_and_compare(run, folder)
        self.assertEqual(joined.wait(TIMEOUT), 0)
        self.assertEqual((got["failures"], got["joins"]), (2, 2))
        self.assertEqual(len(self.events(folder, "worker_started")), 1)

    def test_a_worker_that_dies_soon_after_it_came_is_held_off_longer_each_time(self):
        spec, folder = self.spec(steps=100000, failure=", respawn: 4")
        run = self.start(spec, "--quiet", "--inject", "kill:1@5")
        for times in range(1, 4):
            self.await_event(run, folder, "joined", times)
            self.kill(folder, 1)
            self.await_event(run, folder, "held_off", times)
        run.send_signal(signal.SIGTERM)
        self.finish(run)
        self.assertEqual([e["seconds"] for e in self.events(folder, "held_off")], [1, 2, 4])

    # ---- status

    def test_status_shows_who_is_there_and_since_when_nobody_got_on(self):
        spec, folder = self.spec(steps=100000)
        run = self.start(spec, "--quiet")
        self.await_event(run, folder, "durable")
        state = self.status(folder)
        self.assertEqual((state["steps"], state["places"], state["live"]), (100000, 8, 4))
        self.assertEqual([w["rank"] for w in state["workers"]], [0, 1, 2, 3])
        self.assertEqual({(w["pipeline"], w["stage"]) for w in state["workers"]}, {(0, 0), (0, 1), (1, 0), (1, 1)})
        for worker in state["workers"]:
            self.assertEqual(worker["state"], "training")
            self.assertIn(worker["phase"], ("step", "compile"))  # it takes up each plan
            self.assertGreaterEqual(worker["progress_age_s"], 0)
        text = self.command("status", folder).stdout
        self.assertRegex(text, r"^step \d+ of 100000, durable \d+ \(\d+\.\d s ago\), 4 workers in 8 places\n")
        self.assertEqual(len(re.findall(r"(?m)^ +\d+ +\d+ +training +\d:\d ", text)), 4)
        run.send_signal(signal.SIGTERM)
        self.finish(run)
        self.assertFalse((folder / "admin.sock").exists())

    def test_only_the_owner_may_ask(self):
        spec, folder = self.spec(steps=100000)
        run = self.start(spec, "--quiet")
        self.await_step(run, folder, 1)
        self.assertEqual((folder / "admin.sock").stat().st_mode & 0o777, 0o600)
        run.send_signal(signal.SIGTERM)
        self.finish(run)

    # ---- usage

    def test_bad_arguments_are_named(self):
        for arguments, word in ((["join"], "arguments are missing"), (["join", "a", "b"], '"b"'),
                                (["join", "a", "-n", "0"], '"0"'), (["drain", "a"], "RUN_DIR RANK"),
                                (["drain", "a", "x"], '"x"'), (["stop", "a", "--nosuch"], '"--nosuch"'),
                                (["status", "a", "--json=1"], '"--json=1"')):
            done = self.command(*arguments, expect=64)
            self.assertIn(word, done.stderr.splitlines()[-1])
        for command in ("join", "drain", "stop", "status"):
            self.assertIn(f"Usage: pawl {command}", self.command(command, "--help").stdout)
            self.assertIn(f"Usage: pawl {command}", self.command("help", command).stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
