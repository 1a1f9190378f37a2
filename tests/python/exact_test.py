"""A training that is killed with SIGKILL and started again computes what an undisturbed one does."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

STEPS, KILLED_AT = 200, 100


def digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def train(folder: str, log: str, kill_at: int) -> None:
    """Logs step, loss, ids of the batch and state of the generators; kills itself after step `kill_at`."""
    import torch

    import pawl
    torch.set_num_threads(1)
    torch.manual_seed(1)
    random.seed(2)
    data = torch.randn(64, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3),
                                torch.nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with pawl.Checkpointer(folder, model=model, optimizer=optimizer, scheduler=scheduler, every=7) as ckpt, \
            open(log, "a", buffering=1) as out:
        for step in ckpt.steps(STEPS):
            ids = torch.randperm(64)[:16].tolist() + [random.randrange(64)]
            loss = model(data[ids]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            state = digest(bytes(torch.get_rng_state().tolist()), repr(random.getstate()).encode())
            print(step, loss.item().hex(), digest(repr(ids).encode()), state, file=out)
            if step + 1 == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


class Exact(unittest.TestCase):
    def run_training(self, folder: str, name: str, kill_at: int) -> int:
        args = [sys.executable, __file__, "train", os.path.join(folder, name),
                os.path.join(folder, name + ".log"), str(kill_at)]
        return subprocess.run(args, timeout=120).returncode

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
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        unittest.main()
