"""Checkpointer on several ranks: DDP and FSDP2, saved by some ranks, loaded by others, to the bit."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import sys
import tempfile
import time
import unittest
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

if int(torch.__version__.split(".")[0]) < 2 or not torch.distributed.is_available():
    print("skipped: this PyTorch has no fully_shard")
    sys.exit(77)

import torch.distributed as td  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

import pawl  # noqa: E402
from pawl import errors  # noqa: E402
from pawl.checkpointer import Checkpointer  # noqa: E402

STEPS = 4


def build(kind: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model: Any = torch.nn.Sequential(torch.nn.Linear(7, 33), torch.nn.BatchNorm1d(33), torch.nn.Linear(33, 5))
    if kind == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (td.get_world_size(),)))
    elif kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    # buffers of BatchNorm differ
    x = torch.arange(56, dtype=torch.float32).reshape(8, 7) / (56 + td.get_rank())
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def whole(value: Any) -> torch.Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def digest(model: Any, optimizer: torch.optim.Optimizer) -> str:
    inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    out = hashlib.sha256()
    for name, value in inner.state_dict().items():
        out.update(name.encode() + whole(value).detach().numpy().tobytes())
    for parameter in inner.parameters():
        for key, value in sorted(optimizer.state[parameter].items()):
            out.update(key.encode() + whole(value).detach().numpy().tobytes())
    return out.hexdigest()


def start(rank: int, world: int, folder: str, tag: str) -> None:
    torch.set_num_threads(1)
    td.init_process_group("gloo", init_method=f"file://{folder}/pg-{tag}", rank=rank, world_size=world)


def put(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii") as f:
        f.write(text)


def get(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as f:
        return f.read()


def save_rank(rank: int, world: int, folder: str, kind: str) -> None:
    start(rank, world, folder, "save")
    model, optimizer = build(kind)
    with Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, every=STEPS) as ckpt:
        assert ckpt.resume() == 0
        for _ in range(STEPS):
            train(model, optimizer)
            ckpt.step()
    text = digest(model, optimizer)
    if rank == 0:
        put(folder, "saved", text)
    td.destroy_process_group()


def load_rank(rank: int, world: int, folder: str, kind: str) -> None:
    start(rank, world, folder, f"load-{kind}-{world}")
    model, optimizer = build(kind)
    with Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, every=100) as ckpt:
        assert ckpt.resume() == STEPS
        text = digest(model, optimizer)
        assert text == get(folder, "saved"), f"rank {rank} of {world}: other bytes than were saved"
        train(model, optimizer)
        assert digest(model, optimizer) != text
    td.destroy_process_group()


def one_rank_saves(rank: int, world: int, folder: str) -> None:
    start(rank, world, folder, "one")
    model, optimizer = build("ddp")
    ckpt = Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, every=1000)
    ckpt.resume()
    train(model, optimizer)
    ckpt.step()
    if rank == 1:
        began = time.monotonic()
        try:
            ckpt.save()
            raise AssertionError("a save on one rank only was begun")
        except errors.Argument as e:
            assert "not on rank 0 of 2" in str(e), e
        assert time.monotonic() - began < 5
    td.barrier()
    ckpt.close()
    td.destroy_process_group()


def stop_rank(rank: int, world: int, folder: str) -> None:
    start(rank, world, folder, "stop")
    model, optimizer = build("ddp")
    ckpt = Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, every="auto")
    ckpt.resume()
    try:
        for step in range(1, 100):
            train(model, optimizer)
            if rank == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            ckpt.step()
        raise AssertionError(f"rank {rank} was not stopped")
    except pawl.errors.Preempted:
        put(folder, f"stopped-{rank}", f"{step} {ckpt.status()['durable_step']}")
    os._exit(0)


def run(function: Any, world: int, *arguments: Any) -> None:
    mp.start_processes(function, (world, *arguments), world, start_method="fork")


class DistTest(unittest.TestCase):
    def check(self, kind: str, worlds: tuple[int, ...]) -> None:
        for world in worlds:
            with self.subTest(kind=kind, world=world), tempfile.TemporaryDirectory() as folder:
                run(save_rank, 4, folder, kind)
                run(load_rank, world, folder, kind)

    def test_ddp_saved_on_four_ranks_loads_on_three_and_one(self) -> None:
        self.check("ddp", (3, 1))

    @unittest.skipUnless(hasattr(torch.cpu.Stream(), "record_event"), "this fully_shard wants a GPU")
    def test_fsdp_saved_on_four_ranks_loads_on_four_three_and_two(self) -> None:
        self.check("fsdp", (4, 3, 2))

    def test_a_save_on_one_rank_is_an_error_within_five_seconds(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run(one_rank_saves, 2, folder)

    def test_a_signal_to_one_rank_saves_the_same_step_on_all(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run(stop_rank, 3, folder)
            told = {get(folder, f"stopped-{rank}") for rank in range(3)}
            self.assertEqual(len(told), 1, told)
            step, durable = told.pop().split()
            self.assertEqual(step, durable)
            self.assertIn(int(step), (4, 5))


if __name__ == "__main__":
    unittest.main()
