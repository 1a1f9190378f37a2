"""A training that is killed with SIGKILL and started again computes what an undisturbed one does."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import random
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

import pawl  # noqa: E402

numpy: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None

torch.set_num_threads(1)
STEPS, KILLED_AT = 200, 100


def digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def train(folder: str, log: str, kill_at: int) -> None:
    """Logs step, loss, ids of the batch and state of the generators; kills itself after step `kill_at`."""
    torch.manual_seed(1)
    random.seed(2)
    if numpy:
        numpy.random.seed(3)
    data = torch.randn(64, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3),
                                torch.nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with pawl.Checkpointer(folder, model=model, optimizer=optimizer, scheduler=scheduler, every=33) as ckpt, \
            open(log, "a", buffering=1) as out:
        for step in ckpt.steps(STEPS):
            ids = torch.randperm(64)[:16].tolist() + [random.randrange(64)]
            ids += [int(numpy.random.randint(64))] if numpy else []
            loss = model(data[ids]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            noise = [repr(numpy.random.get_state()).encode()] if numpy else []
            state = digest(bytes(torch.get_rng_state().tolist()), repr(random.getstate()).encode(), *noise)
            print(step, loss.item().hex(), digest(repr(ids).encode()), state, file=out)
            if step + 1 == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


class Exact(unittest.TestCase):
    def run_training(self, folder: str, name: str, kill_at: int) -> int:
        """Its exit code; a warning would be printed."""
        had = forked.run(train, os.path.join(folder, name), os.path.join(folder, name + ".log"), kill_at)
        self.assertEqual("", had.stderr)
        return had.returncode

    def test_killed_and_resumed_equals_undisturbed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(0, self.run_training(folder, "whole", 0))
            self.assertEqual(-signal.SIGKILL, self.run_training(folder, "killed", KILLED_AT))
            self.assertEqual(0, self.run_training(folder, "killed", 0))
            with open(os.path.join(folder, "whole.log")) as f:
                wanted = f.read().splitlines()
            with open(os.path.join(folder, "killed.log")) as f:
                lines = f.read().splitlines()
            had = lines[KILLED_AT:]
            first = int(had[0].split()[0])
            self.assertEqual(STEPS, len(wanted))
            self.assertGreater(first, 0, "began anew")
            self.assertLess(len(had), STEPS)
            self.assertEqual(wanted[:KILLED_AT], lines[:KILLED_AT])
            self.assertEqual(wanted[first:], had)


if __name__ == "__main__":
    forked.main()
