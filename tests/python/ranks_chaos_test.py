"""Three ranks, of which some are killed or told to stop again and again at any moment: the end is that of
no disturbance.

PAWL_SEED=N repeats the choices of a run; each prints its own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
import unittest
from typing import Any

import ranks  # first: it skips where there is no torch

import torch

from pawl import _link, _native
from pawl.checkpointer import Checkpointer
from pawl.data import Sampler

_link.LOST_S = 4.0  # a killed rank is missed sooner
WORLD, KILLS, FOREVER = 3, 10, 1 << 40
LIFE_S = 0.4  # of a group, at most: from where its ranks have met, or from their first step


def rank_trains(rank: int, world: int, folder: str, name: str, total: int) -> None:
    ranks.put(folder, f"met-{rank}", "")
    torch.manual_seed(rank)
    inner = torch.nn.Sequential(torch.nn.Linear(4, 30), torch.nn.Dropout(0.2), torch.nn.Linear(30, 1))
    with torch.no_grad():
        for parameter in inner.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape).sin() / 4)
    # Without this its first step after each start adds up the gradients in another order than the later ones.
    model = torch.nn.parallel.DistributedDataParallel(inner, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sampler: Any = Sampler(999, 9, seed=5)
    with Checkpointer(f"{folder}/{name}", model=model, optimizer=optimizer, sampler=sampler, every=2,
                      grace=5.0,
                      keep=2) as ckpt:
        first = ckpt.resume()
        batches = iter(sampler)
        for _ in range(first, total):
            batch = next(batches, None)
            if batch is None:
                batches = iter(sampler)
                batch = next(batches)
            x = torch.tensor(batch, dtype=torch.float32).unsqueeze(1) / 999 + torch.randn(len(batch), 4) / 10
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True).sin()).square().mean().backward()
            optimizer.step()
            ckpt.step()
            ranks.put(folder, f"runs-{rank}", "")
        ckpt.save(wait=True)
    ranks.put(folder, f"{name}-{rank}", f"{ranks.digest(model, optimizer)} {torch.rand(3).tolist()} "
                                        f"{sampler.state_dict()}")


def newest(path: str) -> int:
    with _native.Reader(path) as reader:
        index = reader.newest()
        return 0 if index is None else reader.steps()[index].step


class ChaosTest(unittest.TestCase):
    def disturb(self, folder: str, dice: random.Random) -> str:
        """One life of the group; what was done to it."""
        for rank in range(WORLD):
            for name in (f"met-{rank}", f"runs-{rank}"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))
        group = ranks.Group(rank_trains, WORLD, folder, "cut", FOREVER)
        # Not before the ranks have met: PyTorch's own meeting waits half an hour for one that died there.
        name = "met" if dice.random() < 0.4 else "runs"
        for rank in range(WORLD):
            ranks.await_file(folder, f"{name}-{rank}")
        time.sleep(dice.random() * LIFE_S)
        number = dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        who = dice.sample(range(WORLD), dice.randint(1, WORLD))
        for rank in who:
            group.kill(rank, number)
            time.sleep(dice.choice([0.0, 0.001, 0.02]))
        codes = group.end()
        self.assertNotIn(None, codes, f"a rank did not end when {who} got {number.name}")
        self.assertNotIn(0, codes)
        return f"{number.name} to {who}: {codes}"

    def test_killed_ten_times_it_ends_as_if_it_had_not_been(self) -> None:
        seed = int(os.environ.get("PAWL_SEED") or time.time_ns() % 10**9)
        print(f"PAWL_SEED={seed}", flush=True)
        dice, done = random.Random(seed), []
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(rank_trains, WORLD, folder, "cut", 10)
            for _ in range(KILLS):
                before = newest(f"{folder}/cut")
                done.append(self.disturb(folder, dice))
                self.assertGreaterEqual(newest(f"{folder}/cut"), before, f"seed {seed}: steps were lost: "
                                                                         f"{done}")
            total = newest(f"{folder}/cut") + 11
            ranks.run(rank_trains, WORLD, folder, "cut", total)
            ranks.run(rank_trains, WORLD, folder, "whole", total)
            for rank in range(WORLD):
                self.assertEqual(ranks.get(folder, f"cut-{rank}"), ranks.get(folder, f"whole-{rank}"),
                                 f"seed {seed}, {total} steps, rank {rank}: {done}")
        print(f"{total} steps; " + "; ".join(done))


if __name__ == "__main__":
    ranks.warm()
    unittest.main()
