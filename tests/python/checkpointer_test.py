"""Checkpointer: fence, signals, forks, failures and the end of the program."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import inspect
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import threading
import unittest
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import forked  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import pawl  # noqa: E402
from pawl import errors  # noqa: E402

torch.set_num_threads(1)
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000  # sched.h
KEPT: list[Any] = []  # what lives until the interpreter ends


class Counter:
    """A position in the data, as data.Sampler has one."""

    def __init__(self) -> None:
        self.taken = 0

    def pawl_step(self) -> None:
        self.taken += 1

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]


class Base(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "run")


class Loop(Base):
    def train(self, steps: int, **options: Any) -> tuple[list[int], Counter]:
        model, counter = nn.Linear(4, 4), Counter()
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        ran = []
        with pawl.Checkpointer(self.path, model=model, optimizer=opt, sampler=counter, **options) as ckpt:
            for step in ckpt.steps(steps):
                ran.append(step)
                opt.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                opt.step()
        return ran, counter

    def test_steps_resumes_and_saves_the_last_one(self) -> None:
        self.assertEqual(list(range(5)), self.train(5, every=2)[0])
        ran, counter = self.train(8, every=2)
        self.assertEqual([5, 6, 7], ran)
        self.assertEqual(8, counter.taken)
        self.assertEqual([], self.train(8)[0])

    def test_from_scratch_begins_anew_and_replaces(self) -> None:
        self.train(5, every=2)
        self.assertEqual(list(range(3)), self.train(3, every=1, from_scratch=True)[0])
        self.assertEqual([3], self.train(4)[0])

    def test_stored_steps_are_not_overwritten_without_resume(self) -> None:
        self.train(3, every=1)
        with pawl.Checkpointer(self.path, model=nn.Linear(4, 4), every=1) as ckpt, \
                self.assertRaises(errors.Argument):
            ckpt.step()

    def test_events_tell_what_became_of_each_save(self) -> None:
        with pawl.Checkpointer(self.path, model=nn.Linear(4, 4), every=2) as ckpt:
            for _ in range(2):
                ckpt.step()
            self.assertFalse(ckpt._gatherer.holds())  # without an optimizer, save() has waited for the copies
            ckpt.wait()
            told = ckpt.events()
            self.assertEqual(["begun", "captured", "committed", "durable"], [e.kind for e in told])
            self.assertEqual({2}, {e.step for e in told})
            self.assertGreater(told[-1].bytes, 0)
            self.assertEqual([], ckpt.events())
        with self.assertRaisesRegex(errors.Argument, "is closed"):
            ckpt.events()

    def test_generators_go_on_where_they_were(self) -> None:
        def drawn() -> list[float]:
            numpy = sys.modules.get("numpy")
            return [*torch.rand(3).tolist(), random.random(), *(numpy.random.rand(2) if numpy else ())]

        with contextlib.suppress(ImportError):
            import numpy  # noqa: F401
        model = nn.Linear(2, 2)
        with pawl.Checkpointer(self.path, model=model) as ckpt:
            ckpt.step()
            ckpt.save()
            wanted = drawn()
        for rng in (True, False):
            before = torch.get_rng_state()
            with pawl.Checkpointer(self.path, model=model, rng=rng) as ckpt:
                ckpt.resume()
                self.assertEqual(rng, not torch.equal(before, torch.get_rng_state()))
                self.assertEqual(rng, drawn() == wanted)

    def test_a_save_holds_the_state_before_the_next_optimizer_step(self) -> None:
        model = nn.Linear(1024, 1024, bias=False)
        opt = torch.optim.SGD(model.parameters(), lr=1.0)
        model.weight.grad = torch.ones_like(model.weight)
        with pawl.Checkpointer(self.path, model=model, optimizer=opt, keep=1) as ckpt:
            ckpt.step()
            ckpt.save()
            before = model.weight.detach().clone()
            opt.step()
            self.assertFalse(torch.equal(before, model.weight))
        with pawl.Checkpointer(self.path, model=model, optimizer=opt) as ckpt:
            ckpt.resume()
        self.assertTrue(torch.equal(before, model.weight))

    def test_debug_names_what_changed_before_the_fence(self) -> None:
        model = nn.Linear(4, 4)
        opt = torch.optim.SGD(model.parameters(), lr=1.0)
        with pawl.Checkpointer(self.path, model=model, optimizer=opt, debug=True) as ckpt:
            ckpt.step()
            ckpt.save()
            with torch.no_grad():
                model.bias.add_(1)
            with self.assertRaisesRegex(errors.Diverged, "step 1 .*: model/bias[.]"):
                opt.step()

    def test_parameters_that_are_not_contiguous_may_move(self) -> None:
        def make() -> tuple[nn.Conv2d, torch.optim.Optimizer]:
            model = nn.Conv2d(4, 6, 3)
            model.weight.data = model.weight.data.to(memory_format=torch.channels_last)
            return model, torch.optim.SGD(model.parameters(), lr=0.1)

        model, opt = make()
        with pawl.Checkpointer(self.path, model=model, optimizer=opt, every=1) as ckpt:
            ckpt.step()
            ckpt.fence()
            model.weight.data = torch.randn(6, 4, 3, 3).to(memory_format=torch.channels_last)
            ckpt.step()
        again, opt = make()
        with pawl.Checkpointer(self.path, model=again, optimizer=opt, every=1) as ckpt:
            self.assertEqual(ckpt.resume(), 2)
        there, here = model.state_dict()["weight"], again.state_dict()["weight"]
        self.assertTrue(torch.equal(there, here))

    def test_memory_for_copies_holds_the_state_or_what_is_allowed(self) -> None:
        model = nn.Linear(4096, 4200)
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        mib = 1 << 20
        for staging, least, most in ((None, size, 2 * size), (mib, mib, mib), (65 * mib, 64 * mib, 65 * mib)):
            path = f"{self.path}.{staging}"
            with pawl.Checkpointer(path, model=model, every=1, staging=staging) as ckpt:
                ckpt.step()
                ckpt.wait()
                had = ckpt.status()["staging_bytes"]
                self.assertTrue(least <= had <= most, f"wanted {least} to {most} bytes of memory, had {had}")

    def test_wrong_calls_say_what_to_do(self) -> None:
        model = nn.Linear(2, 2)
        with self.assertRaisesRegex(errors.Argument, "nothing to save"):
            pawl.Checkpointer(self.path)
        ckpt = pawl.Checkpointer(self.path, model=model, every=100)
        with self.assertRaisesRegex(errors.Argument, "before the first step"):
            ckpt.save()
        for wrong in ("7", 2.5, True, -1):
            with self.assertRaisesRegex(errors.Argument, f"step is {wrong!r}: wanted a whole number"):
                ckpt.step(wrong)  # type: ignore[arg-type]
            with self.assertRaisesRegex(errors.Argument, f"total is {wrong!r}: wanted a whole number"):
                next(ckpt.steps(wrong))  # type: ignore[arg-type]
        ckpt.step(4)
        with self.assertRaisesRegex(errors.Argument, "only grow"):
            ckpt.step(4)
        with self.assertRaisesRegex(errors.Argument, "once"):
            ckpt.resume()
        ckpt.close()
        with self.assertRaisesRegex(errors.Argument, "is closed"):
            ckpt.step()
        with pawl.Checkpointer(f"{self.path}-2", model=model) as ckpt, \
                self.assertRaisesRegex(errors.Argument, "in a loop over steps.., which calls it itself"):
            for _ in ckpt.steps(3):
                ckpt.step()

    def test_every_wrong_option_is_named_with_what_was_given_and_what_is_wanted(self) -> None:
        wrong: dict[str, list[Any]] = {
            "every": [0, -1, "often", 1.5, None, True], "overhead": [9, 0, -0.1, "3%", math.nan, None, True],
            "keep": [0, -1, 65, "1", 1.0, None], "in_flight": [0, -1, 33, "2", 2.0, None],
            "mtbf": [0, -1, math.inf, math.nan, "1h"], "on_full": ["explode", None, 1, ["wait"]],
            "staging": [100, -1, 0, "all", 1e6], "tolerate": [-1, "1", 1.0, None, 2**32],
            "grace": [-1, math.nan, math.inf, "30", None],
            "signals": [signal.SIGTERM, "SIGTERM", None, (signal.SIGKILL,), (0,), (1000,), ("SIGTERM",)],
            "rng": [1, None, "no"], "debug": [0, "yes"], "from_scratch": ["no", None]}
        optional = set(inspect.signature(pawl.Checkpointer).parameters) - {"path", "objects"}
        self.assertEqual(optional, set(wrong))
        for name, values in wrong.items():
            for value in values:
                said = re.escape(f"{name} is {value!r}: wanted ")
                with self.subTest(name, value=value), self.assertRaisesRegex(errors.Argument, said):
                    pawl.Checkpointer(self.path, model=nn.Linear(2, 2), **{name: value})
        for path in (None, 3, "", b"run", "a\0b"):
            with self.assertRaisesRegex(errors.Argument, "path is "):
                pawl.Checkpointer(path, model=nn.Linear(2, 2))  # type: ignore[arg-type]
        self.assertFalse(os.path.exists(self.path))

    def test_values_that_cannot_be_saved_are_refused_when_it_is_made(self) -> None:
        deep: list[Any] = []
        deep.append(deep)
        sparse = torch.ones(2).to_sparse()
        model = nn.Linear(2, 2)
        for wrong, said in (({"a": object()}, "extra/a: a value of type builtins.object"),
                            ([model], "extra/0: .* It has state_dict.* name of its own, outside of extra"),
                            ([torch.optim.SGD(model.parameters(), lr=1)], "extra/0: .* name of its own"),
                            ({"a": nn.LazyLinear(2).weight}, "extra/a: it has no shape yet"),
                            ({"a": torch.ones(1, dtype=torch.complex128)}, "extra/a: .* torch.complex128"),
                            ({"a": [1, {"b": print}]}, "extra/a/1/b: "), (deep, "contain itself"),
                            ({"a": sparse}, "extra/a: a tensor of layout")):
            with self.assertRaisesRegex(errors.Unsupported, said):
                pawl.Checkpointer(self.path, model=nn.Linear(2, 2), extra=wrong)
        self.assertTrue(issubclass(errors.Unsaveable, errors.Unsupported))
        self.assertFalse(os.path.exists(self.path))
        deeper: Any = Counter()
        deeper.state_dict = lambda: {"a": {"b": [1, print]}}
        with pawl.Checkpointer(self.path, sampler=deeper, every=1) as ckpt, \
                self.assertRaisesRegex(errors.Unsaveable, "sampler/a/b/1: a value of type builtins"):
            ckpt.step()

    def test_what_to_call_is_said_in_the_words_of_python(self) -> None:
        self.train(3, every=1)
        for every in (1, 100):
            with pawl.Checkpointer(self.path, model=nn.Linear(4, 4), every=every) as ckpt, \
                    self.assertRaises(errors.Argument) as had:
                ckpt.step(4)
                ckpt.save()
            self.assertIn("holds step 3: call resume(), or from_scratch=True", str(had.exception))
            self.assertNotIn("pawl_", str(had.exception))

    def test_a_full_device_says_what_to_do(self) -> None:
        full = errors.NoSpace("run/starts/2: cannot make: No space left on device", 28)
        with mock.patch("pawl._native.Ckpt", side_effect=full) as opens, \
                self.assertRaisesRegex(errors.NoSpace, "starts/2.*: make room on that device"):
            pawl.Checkpointer(self.path, model=nn.Linear(2, 2), every=7, keep=3, in_flight=4, on_full="skip",
                              tolerate=5, mtbf=60.0, overhead=0.5)
        given = {"every": 7, "keep": 3, "in_flight": 4, "full": "skip", "tolerate": 5, "mtbf_s": 60.0,
                 "overhead": 0.5, "rank_count": 1}
        self.assertLessEqual(given.items(), opens.call_args.kwargs.items())


class Again(Base):
    """In one process, as the cells of a notebook are run again."""

    def make(self, **options: Any) -> pawl.Checkpointer:
        model = nn.Linear(4, 4)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        return pawl.Checkpointer(self.path, model=model, optimizer=opt, every=1, **options)

    def test_without_references_it_is_closed_and_its_saves_are_whole(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        for step in range(3):
            ckpt = self.make()
            self.assertEqual(step, ckpt.resume())
            ckpt.step()
            del ckpt
            gc.collect()
        self.assertEqual(before, signal.getsignal(signal.SIGTERM))

    def test_an_object_that_holds_it_does_not_keep_it_open(self) -> None:
        for step in range(3):
            counter: Any = Counter()
            counter.ckpt = ckpt = self.make(sampler=counter)
            self.assertEqual(step, ckpt.resume())
            ckpt.step()
            gone = weakref.ref(ckpt)
            del ckpt, counter  # a cycle, which the next Checkpointer of the folder has collected
        self.assertEqual(3, self.make(sampler=Counter()).resume())
        self.assertIsNone(gone())

    def test_one_that_is_open_is_named_and_goes_on(self) -> None:
        ckpt = self.make()
        for _ in range(2):
            with self.assertRaisesRegex(errors.Busy, r"this process has it open: close\(\) the") as had:
                ckpt = self.make()
            self.assertEqual("REJECT", had.exception.next)
        ckpt.step()
        ckpt.close()
        for step in range(1, 4):
            ckpt = self.make()
            self.assertEqual(step, ckpt.resume())
            ckpt.step()
            ckpt.close()

    def test_after_a_mismatch_it_can_be_closed_or_dropped(self) -> None:
        with self.make() as ckpt:
            ckpt.step()
        for drop in (pawl.Checkpointer.close, lambda ckpt: None):
            ckpt = pawl.Checkpointer(self.path, model=nn.Linear(5, 4))
            try:
                ckpt.resume()
                self.fail("the shapes differ")
            except errors.StateMismatch:
                pass
            drop(ckpt)
            del ckpt
            with self.make() as ckpt:
                self.assertEqual(1, ckpt.resume())

    def test_one_that_failed_to_start_leaves_nothing_open(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        with mock.patch("pawl._lifetime.follow", side_effect=errors.Memory("none")):
            with self.assertRaises(errors.Memory) as had:
                self.make()
        self.assertEqual(before, signal.getsignal(signal.SIGTERM))
        self.make().close()
        self.assertEqual("none", str(had.exception))

    def test_closed_it_gives_its_hook_back(self) -> None:
        hook, name = mock.Mock(), "register_step_pre_hook"
        with mock.patch.object(torch.optim.Optimizer, name, create=True, return_value=hook):
            self.make().close()
        hook.remove.assert_called_once_with()

    def test_a_thread_may_make_one_which_sets_no_handlers(self) -> None:
        before, had = signal.getsignal(signal.SIGTERM), []

        def work() -> None:
            with self.make() as ckpt:
                had.append((ckpt.step(), signal.getsignal(signal.SIGTERM)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual([(True, before)], had)

    def test_after_a_signal_it_waits_no_longer_than_the_grace(self) -> None:
        ckpt, waits = self.make(grace=2.0), []
        ckpt.step()

        def late(_: int, until: str, timeout: float) -> None:
            waits.append((until, 0.0 <= timeout <= 2.0))
            if until == "durable":
                raise errors.Timeout("a slow device")

        with mock.patch.object(ckpt._ckpt, "wait", late), self.assertRaises(pawl.Preempted) as had:
            os.kill(os.getpid(), signal.SIGTERM)
            ckpt.step()
        self.assertEqual([("committed", True), ("durable", True)], waits)
        self.assertRegex(str(had.exception), "step 2; it was not saved: a slow device")
        ckpt.close()

    def test_handlers_of_two_are_given_back_in_either_order(self) -> None:
        told: list[int] = []
        before = signal.signal(signal.SIGUSR1, lambda number, _: told.append(number))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        mine = signal.getsignal(signal.SIGUSR1)
        first = self.make(signals=(signal.SIGUSR1,))
        self.path += "-2"
        second = self.make(signals=(signal.SIGUSR1,))
        first.close()
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertEqual([signal.SIGUSR1], told)
        with self.assertRaises(pawl.Preempted):
            second.step()
        second.close()
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertEqual(2 * [signal.SIGUSR1], told)
        self.assertEqual(mine, signal.getsignal(signal.SIGUSR1))


def stops_at_sigterm(path: str) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    ckpt = pawl.Checkpointer(path, model=nn.Linear(4, 4), every=1000)
    for step in range(10):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            print("told", told)
        ckpt.step()


def forks(path: str) -> None:
    with pawl.Checkpointer(path, model=nn.Linear(4, 4), every=1) as ckpt:
        child = os.fork()
        if child == 0:
            try:
                ckpt.step()
            except errors.Argument as e:
                print(e, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        ckpt.step()


def child_saves_too(path: str) -> None:
    """With the optimizer that it has from its parent, whose saves may be under way."""
    model = nn.Linear(256, 256)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with pawl.Checkpointer(path, model=model, optimizer=opt, every=1) as ckpt:
        ckpt.step()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(errors.Argument):
                ckpt.status()
                os._exit(4)
            mine = pawl.Checkpointer(f"{path}-child", model=model, optimizer=opt, every=1)
            opt.step()
            ckpt.close()  # which is the parent's
            opt.step()
            mine.step()
            mine.close()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        opt.step()
        ckpt.step()


def ends_while_saving(path: str) -> None:
    ckpt = pawl.Checkpointer(path, model=nn.Linear(4, 4), every=1)
    ckpt.step()
    KEPT.append(ckpt)


def begins_a_save_that_fails(path: str) -> pawl.Checkpointer:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ckpt = pawl.Checkpointer(path, model=nn.Linear(1000, 1000), every=1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    ckpt.step()
    return ckpt


def ends_while_failing(path: str) -> None:
    KEPT.append(begins_a_save_that_fails(path))


def fills_its_disk(path: str) -> None:
    """A small disk that only this process sees."""
    os.mkdir(path)
    c, maps = ctypes.CDLL(None), {"uid_map": f"0 {os.getuid()} 1", "setgroups": "deny",
                                  "gid_map": f"0 {os.getgid()} 1"}
    lost = c.unshare(CLONE_NEWUSER | CLONE_NEWNS)
    for name, text in () if lost else maps.items():
        Path("/proc/self", name).write_text(text)
    if lost or c.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, b"size=2500k"):
        print("no disk of its own")
        return
    model = nn.Linear(300, 1000)
    with contextlib.suppress(errors.Error), pawl.Checkpointer(f"{path}/run", model=model, every=1) as ckpt:
        ckpt.step()
        ckpt.wait()
        ckpt.step()
        try:
            ckpt.wait()
        except errors.NoSpace as e:
            print(e)
    with pawl.Checkpointer(f"{path}/run", model=model) as ckpt:
        print("goes on from", ckpt.resume())


def leaves_its_block_while_failing(path: str, raises: bool) -> None:
    with begins_a_save_that_fails(path):
        if raises:
            raise SystemExit(7)


def child_ends(path: str) -> None:
    """As a worker of the program's own, which knows nothing of the Checkpointer."""
    with pawl.Checkpointer(path, model=nn.Linear(4, 4), every=1) as ckpt:
        ckpt.step()
        child = os.fork()
        if child == 0:
            raise SystemExit(0)
        assert os.waitpid(child, 0)[1] == 0
        ckpt.step()


class Process(Base):
    def test_sigterm_saves_the_step_and_ends_with_143(self) -> None:
        had = forked.run(stops_at_sigterm, self.path)
        self.assertEqual((143, "told [1]\n"), (had.returncode, had.stdout), had.stderr)
        self.assertIn("step 4, which is saved", had.stderr)
        with pawl.Checkpointer(self.path, model=nn.Linear(4, 4)) as ckpt:
            self.assertEqual(4, ckpt.resume())

    def test_a_child_is_refused_and_can_be_terminated(self) -> None:
        had = forked.run(forks, self.path)
        self.assertEqual(0, had.returncode, had.stderr)
        self.assertIn("its child", had.stdout)
        self.assertTrue(had.stdout.endswith("-15\n"), had.stdout)

    def test_a_child_has_a_checkpointer_of_its_own_on_the_same_optimizer(self) -> None:
        had = forked.run(child_saves_too, self.path)
        self.assertEqual((0, "0\n", ""), (had.returncode, had.stdout, had.stderr))
        for path, steps in ((self.path, 2), (f"{self.path}-child", 1)):
            model = nn.Linear(256, 256)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            with pawl.Checkpointer(path, model=model, optimizer=opt) as ckpt:
                self.assertEqual(steps, ckpt.resume())

    def test_the_end_of_the_program_finishes_saves(self) -> None:
        had = forked.run(ends_while_saving, self.path)
        self.assertEqual((0, ""), (had.returncode, had.stderr))
        with pawl.Checkpointer(self.path, model=nn.Linear(4, 4)) as ckpt:
            self.assertEqual(1, ckpt.resume())

    def test_the_end_of_the_program_tells_of_failures(self) -> None:
        had = forked.run(ends_while_failing, self.path)
        self.assertIn("pawl: " + self.path + ": left open by the program", had.stderr)

    def test_a_disk_that_gets_full_says_what_to_do_and_loses_nothing(self) -> None:
        had = forked.run(fills_its_disk, self.path)
        if had.stdout == "no disk of its own\n":
            self.skipTest("no namespaces for users here")
        said = "slot.* wanted [0-9]+ bytes.*[.] Make room on that device: what was saved"
        self.assertRegex(had.stdout, said, had.stderr)
        self.assertTrue(had.stdout.endswith("goes on from 1\n"), had.stdout + had.stderr)

    def test_the_end_of_its_block_tells_of_failures(self) -> None:
        for raises, code, said in ((False, 1, "pawl[.]errors[.](Io|NoSpace): .*slot"),
                                   (True, 7, "^pawl: .*: while the program was failing: .*slot")):
            had = forked.run(leaves_its_block_while_failing, f"{self.path}-{code}", raises)
            self.assertEqual(code, had.returncode, had.stderr)
            self.assertRegex(had.stderr, said)

    def test_a_child_that_ends_leaves_it_alone(self) -> None:
        had = forked.run(child_ends, self.path)
        self.assertEqual((0, ""), (had.returncode, had.stderr))
        with pawl.Checkpointer(self.path, model=nn.Linear(4, 4)) as ckpt:
            self.assertEqual(2, ckpt.resume())


if __name__ == "__main__":
    forked.main()
