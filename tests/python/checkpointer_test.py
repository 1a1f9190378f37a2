"""Checkpointer: fence, signals, forks, failures and the end of the program."""

from __future__ import annotations

import importlib.util
import os
import random
import resource
import signal
import sys
import tempfile
import unittest
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import forked  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import pawl  # noqa: E402
from pawl import errors  # noqa: E402

torch.set_num_threads(1)


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
            ckpt.wait()
            told = ckpt.events()
            self.assertEqual(["begun", "captured", "committed", "durable"], [e.kind for e in told])
            self.assertEqual({2}, {e.step for e in told})
            self.assertGreater(told[-1].bytes, 0)
            self.assertEqual([], ckpt.events())
        with self.assertRaisesRegex(errors.Argument, "is closed"):
            ckpt.events()

    def test_generators_go_on_where_they_were(self) -> None:
        model = nn.Linear(2, 2)
        with pawl.Checkpointer(self.path, model=model) as ckpt:
            ckpt.step()
            ckpt.save()
            wanted = torch.rand(3).tolist(), random.random()
        with pawl.Checkpointer(self.path, model=model) as ckpt:
            ckpt.resume()
            self.assertEqual(wanted, (torch.rand(3).tolist(), random.random()))

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
        wrong: list[dict[str, Any]] = [{"every": 0}, {"every": "often"}, {"on_full": "explode"},
                                       {"staging": 100}, {"staging": "all"}]
        for options in wrong:
            with self.assertRaises(errors.Argument):
                pawl.Checkpointer(self.path, model=model, **options)
        with self.assertRaisesRegex(errors.Argument, "nothing to save"):
            pawl.Checkpointer(self.path)
        ckpt = pawl.Checkpointer(self.path, model=model, every=100)
        with self.assertRaisesRegex(errors.Argument, "before the first step"):
            ckpt.save()
        ckpt.step(4)
        with self.assertRaisesRegex(errors.Argument, "only grow"):
            ckpt.step(4)
        with self.assertRaisesRegex(errors.Argument, "once"):
            ckpt.resume()
        ckpt.close()
        with self.assertRaisesRegex(errors.Argument, "is closed"):
            ckpt.step()


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


def ends_while_saving(path: str) -> None:
    ckpt = pawl.Checkpointer(path, model=nn.Linear(4, 4), every=1)
    ckpt.step()


def ends_while_failing(path: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ckpt = pawl.Checkpointer(path, model=nn.Linear(1000, 1000), every=1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
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

    def test_the_end_of_the_program_finishes_saves(self) -> None:
        had = forked.run(ends_while_saving, self.path)
        self.assertEqual((0, ""), (had.returncode, had.stderr))
        with pawl.Checkpointer(self.path, model=nn.Linear(4, 4)) as ckpt:
            self.assertEqual(1, ckpt.resume())

    def test_the_end_of_the_program_tells_of_failures(self) -> None:
        had = forked.run(ends_while_failing, self.path)
        self.assertIn("pawl: " + self.path + ": at exit: ", had.stderr)


if __name__ == "__main__":
    forked.main()
