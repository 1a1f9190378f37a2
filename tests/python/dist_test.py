"""Checkpointer on several ranks over gloo: every way to spread a model, saved by some ranks and loaded by
others, equal bit for bit; a killed training equal to an undisturbed one; generators and samples of ranks that
come and go."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import unittest
from typing import Any

import ranks  # first: it skips where there is no torch

import torch
import torch.distributed as td
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from pawl import _shard
from pawl.checkpointer import Checkpointer
from pawl.data import Sampler

if not hasattr(torch.cpu.Stream(), "record_event"):
    print("skipped: this PyTorch's fully_shard wants a GPU")
    sys.exit(77)

STEPS = 2


class Block(torch.nn.Module):
    """Sizes that no number of ranks divides; 3 rows leave the fourth rank nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(7, 33), torch.nn.Linear(33, 7)
        self.norm = torch.nn.BatchNorm1d(33)
        self.few, self.one = torch.nn.Parameter(torch.randn(3, 7)), torch.nn.Parameter(torch.randn(1))

    def forward(self, x: Any) -> Any:
        return self.one * (self.down(self.norm(self.up(x)).relu()) + x @ (self.few.t() @ self.few))


class Rows(torch.optim.Optimizer):
    """Momentum, and state of other shapes than the parameter's: a sum, a count; DTensors with those."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"], state["count"] = torch.zeros_like(p), torch.zeros(())
                    state["all"] = everywhere(p.grad.square().sum())
                state["momentum"].mul_(0.9).add_(p.grad)
                state["all"].add_(everywhere(p.grad.square().sum()))
                state["count"] += 1
                p.sub_(state["momentum"] / (1 + state["all"]).sqrt() * group["lr"])


def everywhere(value: Any) -> Any:
    if not hasattr(value, "placements"):
        return value
    return value.redistribute(placements=[Replicate()] * value.device_mesh.ndim)


def build(kind: str) -> tuple[Any, Any]:
    torch.manual_seed(1)
    world = td.get_world_size()
    if kind == "tp":
        inner: Any = torch.nn.Sequential(torch.nn.Linear(7, 36), torch.nn.ReLU(), torch.nn.Linear(36, 5))
        parallelize_module(inner, init_device_mesh("cpu", (world,)),
                           {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return inner, torch.optim.AdamW(inner.parameters(), lr=0.01)
    model: Any = torch.nn.Sequential(Block(), Block())
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif kind == "hsdp" and world == 4:
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts")))
    else:
        how: dict[str, Any] = {"mesh": init_device_mesh("cpu", (world,))}
        if kind == "mixed":
            for block in model:
                fully_shard(block.norm, **how)  # its buffers stay in float32, so have its parameters to
            how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for block in model:
                fully_shard(block, **how)
        fully_shard(model, **how)
    made: dict[str, Any] = {"rows": Rows, "mixed": lambda p: torch.optim.NAdam(p, lr=0.01)}
    return model, made.get(kind, lambda p: torch.optim.AdamW(p, lr=0.01))(model.parameters())


def train(model: Any, optimizer: Any, spread: bool = True) -> float:
    """spread: another batch on each rank."""
    x = torch.arange(56, dtype=torch.float32).reshape(8, 7) / (56 + (td.get_rank() if spread else 0))
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


# ---- Saved by some ranks, loaded by others ----

KINDS = ("ddp", "fsdp", "mixed", "hsdp", "tp", "rows")


def rank_chain(rank: int, world: int, folder: str, begins: int, to: int) -> None:
    """Of each kind: loads what the ranks before have saved, saves it as the next step, gathers nothing."""
    for kind in KINDS:
        model, optimizer = build(kind)
        ckpt = Checkpointer(f"{folder}/{kind}", model=model, optimizer=optimizer, every=1000)
        assert ckpt.resume() == begins
        for _ in range(0 if begins else STEPS):
            train(model, optimizer, spread=kind != "tp")
        text = ranks.digest(model, optimizer)
        if begins:
            saved = ranks.get(folder, f"saved-{kind}")
            assert text == saved, f"{kind}: rank {rank} of {world}: other bytes than were saved"
        ckpt.step(to)
        with CommDebugMode() as counted:
            ckpt.save(wait=True)
        assert counted.get_total_counts() == 0, f"{kind}: collectives in save(): {counted.get_comm_counts()}"
        ranks.put(folder, f"saved-{kind}", text) if rank == 0 else None
        train(model, optimizer, spread=kind != "tp")  # goes on with what was loaded
        assert ranks.digest(model, optimizer) != text
        ckpt.close()


def rank_other_kind(rank: int, world: int, folder: str, kind: str) -> None:
    """What DistributedDataParallel saved, sharded, and the other way round."""
    model, optimizer = build(kind)
    other = "fsdp" if kind == "ddp" else "ddp"
    with Checkpointer(f"{folder}/{other}", model=model, optimizer=optimizer) as ckpt:
        assert ckpt.resume() == STEPS
        assert ranks.digest(model, optimizer) == ranks.get(folder, f"saved-{other}")
        train(model, optimizer)


def rank_copies(rank: int, world: int, folder: str) -> None:
    """Two by two ranks: bytes that two ranks hold are saved by one."""
    model, optimizer = build("hsdp")
    train(model, optimizer)
    saved = 0
    for name, value in model.state_dict().items():
        if hasattr(value, "placements"):
            saved += sum(piece.view.numel() for piece in _shard.mine(name, value, rank, world))
    every = torch.tensor(saved)
    td.all_reduce(every)
    assert int(every) == sum(p.numel() for p in model.parameters()), int(every)


# ---- Killed and resumed ----


def rank_trains(rank: int, world: int, folder: str, kind: str, name: str, total: int, kill_at: int) -> None:
    """Logs the losses, which generators have a part in."""
    torch.manual_seed(rank)
    random.seed(rank)
    inner: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 3))
    with torch.no_grad():
        for parameter in inner.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape).cos() / 4)
    if kind == "ddp":
        # Without this its first step after a start sums in another order than the later ones.
        inner = torch.nn.parallel.DistributedDataParallel(inner, find_unused_parameters=True)
    else:
        fully_shard(inner, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(inner.parameters(), lr=0.01)
    own = torch.Generator().manual_seed(rank)
    kept: dict[str, Any] = {"generator": own.get_state(), "draws": 0}
    path = f"{folder}/{kind}-{name}"
    with Checkpointer(path, model=inner, optimizer=optimizer, kept=kept, every=7) as ckpt, \
            open(f"{path}-{rank}", "a", buffering=1) as log:
        for step in range(ckpt.resume(), total):
            own.set_state(kept["generator"])
            x = torch.randn(4, 8) + torch.rand(1, generator=own) + random.random()
            kept.update(generator=own.get_state(), draws=kept["draws"] + 1)
            loss = inner(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(step, float(loss.detach()).hex(), kept["draws"], file=log)
            if step + 1 == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            ckpt.step()


# ---- Ranks that come and go ----


def rank_draws(rank: int, world: int, folder: str, begins: int, to: int) -> None:
    """What the generators give after resume(), and what they would have given here had nothing happened."""
    torch.manual_seed(7 + rank)
    random.seed(7 + rank)
    model, optimizer = build("ddp")
    with Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, every=1000) as ckpt:
        assert ckpt.resume() == begins
        if not begins:
            torch.manual_seed(70 + rank)
        ranks.put(folder, f"drawn-{begins}-{rank}", f"{torch.rand(2).tolist()} {random.random()}")
        ckpt.step(to)
        ckpt.save(wait=True)
        ranks.put(folder, f"next-{to}-{rank}", f"{torch.rand(2).tolist()} {random.random()}")


def rank_samples(rank: int, world: int, folder: str, until: int) -> None:
    model, optimizer = build("ddp")
    sampler = Sampler(1000, 24, seed=3, drop_last=False)
    used = []
    with Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, sampler=sampler, every=1000) as ckpt:
        first, epoch = ckpt.resume(), sampler.epoch
        for _, batch in zip(range(first, until), sampler):
            used += batch
            ckpt.step()
        assert sampler.epoch == epoch + (until > 40)
        ckpt.save()
    ranks.put(folder, f"used-{until}-{rank}", " ".join(map(str, used)))


class DistTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_saved_on_four_ranks_then_three_one_and_two_and_nothing_is_gathered(self) -> None:
        for step, world in enumerate((4, 3, 1, 2)):
            with self.subTest(world=world):
                ranks.run(rank_chain, world, self.folder, step and STEPS + step - 1, STEPS + step)
                if step == 0:
                    ranks.run(rank_other_kind, 2, self.folder, "fsdp")
                    ranks.run(rank_other_kind, 3, self.folder, "ddp")

    def test_of_equal_shards_one_rank_saves_each_byte(self) -> None:
        ranks.run(rank_copies, 4, self.folder)

    def test_killed_and_resumed_equals_undisturbed_to_the_bit(self) -> None:
        for kind in ("ddp", "fsdp"):
            with self.subTest(kind=kind):
                ranks.run(rank_trains, 3, self.folder, kind, "whole", 200, 0)
                ranks.run(rank_trains, 3, self.folder, kind, "cut", 200, 100, wanted=[ranks.KILLED] * 3)
                ranks.run(rank_trains, 3, self.folder, kind, "cut", 200, 0)
                for rank in range(3):
                    whole = ranks.get(self.folder, f"{kind}-whole-{rank}").splitlines()
                    lines = ranks.get(self.folder, f"{kind}-cut-{rank}").splitlines()
                    tail = lines[100:]
                    self.assertEqual(whole[:100], lines[:100])
                    self.assertGreater(int(tail[0].split()[0]), 0, "began anew")
                    self.assertEqual(whole[int(tail[0].split()[0]):], tail)
                self.assertNotEqual(*[ranks.get(self.folder, f"{kind}-whole-{rank}") for rank in range(2)])

    def test_generators_go_on_and_ranks_that_were_not_there_have_new_ones(self) -> None:
        for begins, world in enumerate((2, 3, 2, 3)):
            ranks.run(rank_draws, world, self.folder, begins, begins + 1)
        drawn = {(begins, rank): ranks.get(self.folder, f"drawn-{begins}-{rank}")
                 for begins, world in enumerate((2, 3, 2, 3)) for rank in range(world)}
        for begins, rank in drawn:
            if begins > 0 and rank < 2:
                undisturbed = ranks.get(self.folder, f"next-{begins}-{rank}")
                self.assertEqual(drawn[begins, rank], undisturbed, (begins, rank))
        self.assertEqual(len(set(drawn.values())), len(drawn), "two ranks, or two starts, draw the same")

    def test_each_sample_once_an_epoch_when_four_ranks_become_three(self) -> None:
        ranks.run(rank_samples, 4, self.folder, 20)
        ranks.run(rank_samples, 3, self.folder, 42)
        used = [int(n) for until, world in ((20, 4), (42, 3)) for rank in range(world)
                for n in ranks.get(self.folder, f"used-{until}-{rank}").split()]
        self.assertEqual(sorted(used), list(range(1000)))


if __name__ == "__main__":
    ranks.warm()
    unittest.main()
