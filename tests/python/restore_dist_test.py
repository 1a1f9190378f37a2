"""Restoring on two ranks of which one meets damage, or fails: both do the same."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
import unittest
import warnings
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

if int(torch.__version__.split(".")[0]) < 2 or not torch.distributed.is_available():
    print("skipped: this PyTorch has no fully_shard")
    sys.exit(77)

if not hasattr(torch.cpu.Stream(), "record_event"):
    print("skipped: this PyTorch's fully_shard wants a GPU")
    sys.exit(77)

import forked  # noqa: E402
import torch.distributed as td  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

import pawl  # noqa: E402
from pawl import _native, errors  # noqa: E402

WORLD = 2
SIDE = 64


def start(rank: int, folder: str, tag: str) -> tuple[Any, torch.optim.Optimizer]:
    torch.set_num_threads(1)
    td.init_process_group("gloo", init_method=f"file://{folder}/pg-{tag}", rank=rank, world_size=WORLD)
    torch.manual_seed(1)
    model: Any = torch.nn.Linear(SIDE, SIDE)
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def digest(model: Any, optimizer: torch.optim.Optimizer) -> str:
    out = hashlib.sha256()
    for parameter in model.parameters():
        for tensor in (parameter, *optimizer.state[parameter].values()):
            out.update(getattr(tensor, "full_tensor", lambda here=tensor: here)().detach().numpy().tobytes())
    return out.hexdigest()


def save_rank(rank: int, folder: str) -> None:
    model, optimizer = start(rank, folder, "save")
    with pawl.Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, every=2, keep=2) as ckpt:
        assert ckpt.resume() == 0
        for step in range(1, 5):
            optimizer.zero_grad()
            model(torch.full((3, SIDE), float(step))).square().mean().backward()
            optimizer.step()
            ckpt.step()
            text = digest(model, optimizer)
            if rank == 0 and step == 2:
                with open(f"{folder}/step-2", "w", encoding="ascii") as out:
                    out.write(text)
            ckpt.wait()
        if rank == 1:
            here = model.weight.to_local().detach().numpy().tobytes()
            with open(f"{folder}/bytes", "wb") as raw:
                raw.write(here)
    td.destroy_process_group()


def restore_rank(rank: int, folder: str, made_up: bool) -> None:
    """made_up: rank 1 alone meets damage in the first step that it reads."""
    model, optimizer = start(rank, folder, "restore")
    damage = [errors.Corrupt("made up")] if made_up and rank == 1 else []
    read = _native.Reader.read

    def damaged(reader: _native.Reader, index: int, tensors: Any) -> None:
        read(reader, index, tensors)
        if damage:
            raise damage.pop()

    setattr(_native.Reader, "read", damaged)  # noqa: B010
    with pawl.Checkpointer(f"{folder}/run", model=model, optimizer=optimizer, every=100) as ckpt, \
            warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert ckpt.resume() == 2
        with open(f"{folder}/step-2", encoding="ascii") as wanted:
            assert digest(model, optimizer) == wanted.read(), f"rank {rank}: other bytes than were saved"
        texts = [str(w.message) for w in told if w.category is pawl.StepLost]
        assert len(texts) == (1 if rank == 0 else 0), texts
        for part in ("step 4 is damaged", "rank 1: ", "2 steps are computed again"):
            assert all(part in text for text in texts), texts
        failed = [e.step for e in ckpt.events() if e.kind == "failed"]
        assert failed == [4] or (rank == 0 and failed == []), failed
        assert not made_up or rank == 1 or failed == [], failed
        ckpt.step()
        ckpt.save(wait=True)
        assert ckpt.status()["durable_step"] == 3
    td.destroy_process_group()


def run(function: Any, *arguments: Any) -> None:
    mp.start_processes(function, arguments, WORLD, start_method="fork")


def flip(folder: str) -> None:
    """A bit of the newest step, in the part of it that rank 1 alone reads."""
    with open(f"{folder}/bytes", "rb") as raw:
        wanted = raw.read()
    store = f"{folder}/run/store/rank-0001"
    for name in os.listdir(store):
        with open(os.path.join(store, name), "r+b") as f:
            at = f.read().find(wanted)
            if at >= 0:
                f.seek(at)
                f.write(bytes([wanted[0] ^ 1]))
                return
    raise AssertionError("rank 1 has no such bytes")


class RestoreDistTest(unittest.TestCase):
    def test_damage_that_one_rank_meets_takes_all_ranks_back(self) -> None:
        for made_up in (False, True):
            with self.subTest(made_up=made_up), tempfile.TemporaryDirectory() as folder:
                run(save_rank, folder)
                if not made_up:
                    flip(folder)
                run(restore_rank, folder, made_up)


if __name__ == "__main__":
    forked.import_all()  # not in each of the ranks, which are forked
    unittest.main()
