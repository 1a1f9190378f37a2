"""Drives the engine as the C executor does, through its table of functions, over memory of its own.

With the user's files that the tests have in common."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
import tempfile
import textwrap
import unittest
from ctypes import byref
from pathlib import Path
from typing import Any

import torch

from pawl import _abi, _train_abi
from pawl._engine import Engine

# Files of one name and length follow each other here within a second: to byte code they are the same.
sys.dont_write_bytecode = True


class Failed(Exception):
    """What an engine's function returned that was not OK."""

    def __init__(self, error: _abi.CError) -> None:
        self.code = _train_abi.CODES[error.code]
        super().__init__(error.text.decode())


class Memory:
    """Zeroed memory on a page boundary, as the executor's."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, max(size, 1))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = size

    def bytes(self) -> bytes:
        return self.map[: self.size]


class Driver:
    """One process's engine over the user's file `text`."""

    def __init__(
        self,
        folder: Path,
        text: str,
        *,
        stages: int,
        batch: int = 4,
        contributions: int = 3,
        seed: int = 7,
        options: str = "",
        name: str = "train_me.py",
        threads: int = 1,
    ) -> None:
        path = folder / name
        path.write_text(textwrap.dedent(text))
        self.engine = Engine()
        self.table = self.engine.struct()
        self.slots = itertools.count(1)
        job = _train_abi.CEngineJob(
            str(path).encode(), options.encode(), seed, stages, batch, contributions, threads
        )
        self.call("open", byref(job))
        self.layouts = [self._open(stage) for stage in range(stages)]

    def call(self, function: str, *arguments: Any) -> None:
        error = _abi.CError()
        code = getattr(self.table, function)(None, *arguments, byref(error))
        assert code == error.code or code == 0, f"returned {code}, filled in {error.code}"
        if code:
            raise Failed(error)

    def optimizer(self) -> _train_abi.CEngineOptimizer:
        out = _train_abi.CEngineOptimizer()
        self.call("optimizer", byref(out))
        return out

    def _open(self, stage: int) -> Any:
        layout = _train_abi.CEngineLayout()
        self.call("stage_open", stage, byref(layout))
        return layout

    def tensors(self, stage: int) -> list[Any]:
        return list(self.layouts[stage].tensors[: self.layouts[stage].tensor_count])

    def names(self, stage: int) -> list[str]:
        return [t.name.decode() for t in self.tensors(stage)]

    def offsets(self, stage: int) -> Any:
        sizes = [torch.Size(t.shape[: t.rank]).numel() for t in self.tensors(stage)]
        return (ctypes.c_uint64 * len(sizes))(*itertools.accumulate([0, *sizes[:-1]])), sum(sizes)

    def params(self, stage: int) -> Memory:
        offsets, count = self.offsets(stage)
        memory = Memory(4 * count)
        self.call("init", stage, memory.address, offsets)
        return memory

    def microbatch(
        self,
        stage: int,
        params: Memory,
        step: int,
        number: int,
        input: Memory | None = None,
        no_input_grad: bool = False,
        no_weight_grad: bool = False,
    ) -> InFlight:
        return InFlight(self, stage, params, step, number, input, no_input_grad, no_weight_grad)

    def run(self, params: list[Memory], step: int, number: int) -> tuple[float, list[dict[str, bytes]]]:
        """(loss, each stage's gradients by name) of one micro-batch through all stages."""
        flights: list[InFlight] = []
        for stage, memory in enumerate(params):
            sent = flights[-1].output if flights else None
            flights.append(self.microbatch(stage, memory, step, number, sent))
            flights[-1].forward()
            spoil(sent)  # the memory is the executor's again
        back = None
        for flight in reversed(flights):
            grad_in, back = back, flight.input_grad(back)
            spoil(grad_in)
        return flights[-1].c.loss, [flight.finish() for flight in flights]


class InFlight:
    """A micro-batch in a stage."""

    def __init__(
        self,
        driver: Driver,
        stage: int,
        params: Memory,
        step: int,
        number: int,
        input: Memory | None,
        no_input_grad: bool,
        no_weight_grad: bool,
    ) -> None:
        layout = driver.layouts[stage]
        self.driver, self.stage, self.params, self.input = driver, stage, params, input
        self.output = Memory(layout.output_bytes)
        self.grad_out = Memory(0 if no_input_grad else layout.input_bytes)
        self.offsets, _ = driver.offsets(stage)
        self.grads = (ctypes.c_void_p * max(1, layout.tensor_count))()
        self.c = _train_abi.CEngineCall(
            stage=stage,
            slot=next(driver.slots),
            version=step,
            params=params.address,
            offsets=self.offsets,
            step=step,
            microbatch=number,
            no_input_grad=no_input_grad,
            no_weight_grad=no_weight_grad,
            input=input.address if input else None,
            output=self.output.address if self.output.size else None,
            grad_out=self.grad_out.address if self.grad_out.size else None,
        )

    def forward(self) -> Memory:
        self.driver.call("forward", byref(self.c))
        return self.output

    def input_grad(self, grad_in: Memory | None = None) -> Memory:
        self.c.grad_in = grad_in.address if grad_in else None
        self.driver.call("input_grad", byref(self.c))
        return self.grad_out

    def weight_grad(self) -> dict[str, bytes]:
        """Bytes of each parameter's gradient, zeros for null."""
        self.c.grads = self.grads
        self.driver.call("weight_grad", byref(self.c))
        sizes = [4 * torch.Size(t.shape[: t.rank]).numel() for t in self.driver.tensors(self.stage)]
        return {
            name: ctypes.string_at(at, size) if at else bytes(size)
            for name, at, size in zip(self.driver.names(self.stage), self.grads, sizes)
        }

    def finish(self) -> dict[str, bytes]:
        found = self.weight_grad()
        self.driver.table.drop(None, self.stage, self.c.slot)
        return found


def spoil(memory: Memory | None) -> None:
    if memory is not None:
        ctypes.memset(memory.address, 0xAB, memory.size)


def floats(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.float32) if data else torch.empty(0)


HEAD = """
import pawl, torch
from torch import nn
F = nn.functional
class Data:
    def __len__(self): return 10
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(6, generator=g), i % 3
def adamw(params): return torch.optim.AdamW(params, lr=3e-4, weight_decay=0.1)
"""
MLP = (
    HEAD
    + """
pipeline = pawl.pipeline(stages=[nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True)),
                                 nn.Sequential(nn.ReLU(True), nn.LayerNorm(8), nn.Linear(8, 8, False)),
                                 nn.Linear(8, 3)],
                         loss=F.cross_entropy, data=Data(), optimizer=adamw)
"""
)


# Text in, a tied embedding, attention, a mask and bfloat16 on the wire, dropout, checkpoints, autocast.
GPT = """
import pawl, random, torch
from torch import nn
F = nn.functional
class Data:
    def __len__(self): return 7
    def __getitem__(self, i):
        text = (torch.randint(0, 11, (6,)) + random.randrange(11)) % 11  # another text each time
        return text[:-1], text[1:]
class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.scale = nn.Embedding(11, 8), nn.Parameter(torch.ones(8))
        self.register_buffer("places", torch.randn(5, 8))
    def forward(self, text):
        x = self.wte(text) + self.places * self.scale
        x = x + F.linear(F.linear(x, self.wte.weight), self.wte.weight.t().contiguous())
        return F.dropout(x, 0.2), text > 3, x.bfloat16()
class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.up = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1), nn.Linear(8, 8)
        self.shared, self.unused = nn.Linear(8, 8), nn.Linear(3, 3)
    def block(self, x):
        return self.shared(torch.tanh(self.shared(x)))
    def forward(self, x, mask, low):
        x = x + self.attend(x, x, x, key_padding_mask=mask & False)[0] + self.up(low.float())
        x = x + torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False)
        with torch.autocast("cpu", torch.bfloat16):
            y = self.up(x)
        return x + y.float(), mask
class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 11)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
    def forward(self, x, mask):
        return self.head(self.frozen(x) * (1 + mask.unsqueeze(-1)))
def loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
def pipeline(options):
    return pawl.pipeline(stages=[Front, Middle, Back], loss=loss, data=Data(),
                         optimizer=lambda params: torch.optim.AdamW(params, lr=options["lr"]))
"""
GPT_JOB: dict[str, Any] = dict(stages=3, options='{"lr": 0.01}')


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(sys.path.__setitem__, slice(None), list(sys.path))
        self.addCleanup(sys.modules.pop, "train_me", None)

    def driver(self, text: str, **job: Any) -> Driver:
        sys.modules.pop("train_me", None)
        return Driver(self.folder, text, **job)
