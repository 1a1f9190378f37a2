"""Ranks of torch.distributed as forked processes, each with a time limit, for the tests of several ranks.

What every rank would import at its first step is imported here, once. No rank outlives run()."""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

if int(torch.__version__.split(".")[0]) < 2 or not torch.distributed.is_available():
    print("skipped: this PyTorch has no fully_shard")
    sys.exit(77)

import torch.distributed as td  # noqa: E402
import torch.distributed.fsdp  # noqa: E402, F401
import torch.distributed.tensor  # noqa: E402, F401
import torch.nn.parallel  # noqa: E402, F401

torch.set_num_threads(1)
LIMIT_S = 50.0  # of one run: on a machine that does ten things at once
KILLED = -signal.SIGKILL


def warm() -> None:
    """The first step of an optimizer imports a thousand modules. No backward(): its threads do not survive
    a fork."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.AdamW([parameter]).step()
    random.seed()


def _main(function: Callable[..., None], rank: int, world: int, folder: str, tag: str,
          arguments: tuple[Any, ...]) -> None:
    code = 1
    signal.alarm(int(2 * LIMIT_S))  # also where the tests are killed before they reap it
    try:
        os.environ.pop("MASTER_ADDR", None)
        td.init_process_group("gloo", init_method=f"file://{folder}/pg-{tag}", rank=rank, world_size=world)
        function(rank, world, folder, *arguments)
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what is at exit of the tests' own process is not for its children


class Group:
    """`world` ranks that run function(rank, world, folder, *arguments) after init_process_group."""

    _made = 0

    def __init__(self, function: Callable[..., None], world: int, folder: str, *arguments: Any) -> None:
        Group._made += 1
        tag = f"{os.getpid()}-{Group._made}"
        fork = multiprocessing.get_context("fork")
        self.ranks = [fork.Process(target=_main, args=(function, r, world, folder, tag,
                                                       arguments)) for r in range(world)]
        for rank in self.ranks:
            rank.start()

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        pid = self.ranks[rank].pid
        if pid is not None and self.ranks[rank].is_alive():
            os.kill(pid, number)

    def end(self, limit_s: float = LIMIT_S) -> list[int | None]:
        """Exit codes; what lives after `limit_s` is killed, and None."""
        deadline = time.monotonic() + limit_s
        for rank in self.ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        codes = [rank.exitcode for rank in self.ranks]
        for rank in self.ranks:
            rank.kill()
            rank.join()
        return codes


def run(function: Callable[..., None], world: int, folder: str, *arguments: Any,
        wanted: list[int] | None = None) -> None:
    codes = Group(function, world, folder, *arguments).end()
    if codes != (wanted or [0] * world):
        raise AssertionError(f"{function.__name__} on {world} ranks ended with {codes}, wanted "
                             f"{wanted or 'all 0'}")


def put(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name + ".new"), "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(os.path.join(folder, name + ".new"), os.path.join(folder, name))


def get(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return f.read()


def await_file(folder: str, name: str, limit_s: float = LIMIT_S) -> str:
    deadline = time.monotonic() + limit_s
    while not os.path.exists(os.path.join(folder, name)):
        if time.monotonic() > deadline:
            raise AssertionError(f"{name} was not written in {limit_s:g} s")
        time.sleep(0.005)
    return get(folder, name)


def whole(value: Any) -> Any:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def digest(model: Any, optimizer: Any) -> str:
    """Of all that is in a model and its optimizer, gathered: the same on every rank of every world."""
    inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    out = hashlib.blake2b(digest_size=16)
    for name, value in inner.state_dict().items():
        out.update(name.encode() + raw(whole(value)))
    for name, parameter in inner.named_parameters():
        for key, value in sorted(optimizer.state[parameter].items()):
            out.update(f"{name}/{key}".encode() + raw(whole(value)))
    return out.hexdigest()


def raw(value: Any) -> bytes:
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    return value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
