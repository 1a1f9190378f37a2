"""The fence before optimizer.step() where PyTorch has no hook for it (before version 2): the method is
wrapped.

Any PyTorch runs this: the hook is taken off the class, where it has one."""

from __future__ import annotations

import gc
import importlib.util
import sys
import tempfile
import unittest
import warnings
import weakref
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

from pawl.checkpointer import Checkpointer  # noqa: E402

torch.set_num_threads(1)
NAME = "register_step_pre_hook"


class WithoutHooks(unittest.TestCase):
    def setUp(self) -> None:
        hook = getattr(torch.optim.Optimizer, NAME, None)
        if hook is not None:
            delattr(torch.optim.Optimizer, NAME)
            self.addCleanup(setattr, torch.optim.Optimizer, NAME, hook)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name + "/run"
        torch.manual_seed(1)
        self.model = torch.nn.Linear(4, 3)
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.9)

    def open(self, **more: Any) -> Checkpointer:
        return Checkpointer(self.path, model=self.model, optimizer=self.optimizer, every=1, signals=(),
                            **more)

    def scheduler(self) -> Any:
        return torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)

    def train(self, steps: int, *after: Any) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.ones(2, 4)).sum().backward()
            self.optimizer.step()
            for call in after:
                call()

    def test_there_is_no_hook(self) -> None:
        self.assertFalse(hasattr(self.optimizer, NAME))

    def test_each_step_waits_for_what_is_being_saved(self) -> None:
        with self.open() as ckpt:
            ckpt.resume()
            self.train(1, ckpt.step)
            before = self.model.weight.detach().clone()
            self.assertTrue(ckpt._gatherer.holds())
            self.train(1)
            self.assertFalse(ckpt._gatherer.holds())  # the fence let them go
        other = torch.nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9)
        self.model = other
        with self.open() as ckpt:
            self.assertEqual(ckpt.resume(), 1)
        self.assertTrue(torch.equal(other.weight, before))

    def test_what_step_returns_and_takes_goes_through(self) -> None:
        with self.open():
            self.assertEqual(self.optimizer.step(lambda: 7.0), 7.0)

    def test_closed_it_leaves_the_optimizer_as_it_was(self) -> None:
        plain = self.optimizer.step
        with self.open():
            self.assertNotEqual(self.optimizer.step, plain)
        self.assertNotIn("step", vars(self.optimizer))
        self.assertEqual(self.optimizer.step, plain)

    def test_dropped_it_leaves_the_optimizer_as_it_was_and_does_not_hold_it(self) -> None:
        for _ in range(2):
            ckpt = self.open()
            self.assertIn("step", vars(self.optimizer))
            del ckpt
            gc.collect()
            self.assertNotIn("step", vars(self.optimizer))
        ckpt, gone = self.open(), weakref.ref(self.optimizer)
        ckpt.other = self.optimizer.owner = ckpt  # type: ignore[attr-defined]
        del ckpt, self.optimizer
        gc.collect()
        self.assertIsNone(gone())

    def check_scheduler(self, first: bool) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scheduler = self.scheduler() if first else None
            had = vars(self.optimizer).get("step")
            with self.open() as ckpt:
                ckpt.resume()
                scheduler = scheduler or self.scheduler()
                self.train(2, scheduler.step, ckpt.step)
                self.assertTrue(ckpt._gatherer.holds())
                self.train(1)
                self.assertFalse(ckpt._gatherer.holds())
            self.assertAlmostEqual(self.optimizer.param_groups[0]["lr"], 0.125)
            if first:
                self.assertIs(vars(self.optimizer).get("step"), had)
            self.train(1, scheduler.step)
            self.assertAlmostEqual(self.optimizer.param_groups[0]["lr"], 0.0625)

    def test_a_scheduler_made_before_counts_steps_and_warns_of_nothing(self) -> None:
        self.check_scheduler(first=True)

    def test_a_scheduler_made_after_counts_steps_and_warns_of_nothing(self) -> None:
        self.check_scheduler(first=False)

    def test_two_checkpointers_one_after_the_other_and_in_either_order_of_closing(self) -> None:
        first = self.open()
        self.path += "-2"
        second = self.open()
        for ckpt in (first, second):
            ckpt.resume()
        self.train(1, first.step, second.step)
        first.close()
        self.train(1, second.step)
        self.assertFalse(second.save())  # that step is
        second.close()
        self.train(1)


if __name__ == "__main__":
    unittest.main()
