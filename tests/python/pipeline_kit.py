"""Drives the engine as the C executor does, through its table of functions, over memory of its own."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import textwrap
from ctypes import byref
from pathlib import Path
from typing import Any

import torch

from pawl import _abi, _train_abi
from pawl._engine import Engine


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

    def __init__(self, folder: Path, text: str, *, stages: int, batch: int = 4, contributions: int = 3, seed: int = 7,
                 options: str = "", name: str = "train_me.py", threads: int = 1) -> None:
        path = folder / name
        path.write_text(textwrap.dedent(text))
        self.engine = Engine()
        self.table = self.engine.struct()
        self.slots = itertools.count(1)
        job = _train_abi.CEngineJob(str(path).encode(), options.encode(), seed, stages, batch, contributions, threads)
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

    def microbatch(self, stage: int, params: Memory, step: int, number: int, input: Memory | None = None,
                   no_input_grad: bool = False, no_weight_grad: bool = False) -> InFlight:
        return InFlight(self, stage, params, step, number, input, no_input_grad, no_weight_grad)

    def run(self, params: list[Memory], step: int, number: int) -> tuple[float, list[dict[str, bytes]]]:
        """(loss, each stage's gradients by name) of one micro-batch through all stages."""
        flights: list[InFlight] = []
        for stage, memory in enumerate(params):
            flights.append(self.microbatch(stage, memory, step, number, flights[-1].output if flights else None))
            flights[-1].forward()
        back = None
        for flight in reversed(flights):
            back = flight.input_grad(back)
        return flights[-1].c.loss, [flight.finish() for flight in flights]


class InFlight:
    """A micro-batch in a stage."""

    def __init__(self, driver: Driver, stage: int, params: Memory, step: int, number: int, input: Memory | None,
                 no_input_grad: bool, no_weight_grad: bool) -> None:
        layout = driver.layouts[stage]
        self.driver, self.stage, self.params, self.input = driver, stage, params, input
        self.output = Memory(layout.output_bytes) if layout.output_bytes else None
        self.grad_out = Memory(layout.input_bytes) if layout.input_bytes and not no_input_grad else None
        self.offsets, _ = driver.offsets(stage)
        self.grads = (ctypes.c_void_p * max(1, layout.tensor_count))()
        self.c = _train_abi.CEngineCall(
            stage=stage, slot=next(driver.slots), version=step, params=params.address, offsets=self.offsets, step=step,
            microbatch=number, no_input_grad=no_input_grad, no_weight_grad=no_weight_grad,
            input=input.address if input else None, output=self.output.address if self.output else None,
            grad_out=self.grad_out.address if self.grad_out else None)

    def forward(self) -> Memory | None:
        self.driver.call("forward", byref(self.c))
        if self.input is not None:  # the memory is the executor's again
            self.input = Memory(0)
            self.c.input = None
        return self.output

    def input_grad(self, grad_in: Memory | None = None) -> Memory | None:
        self.c.grad_in = grad_in.address if grad_in else None
        self.driver.call("input_grad", byref(self.c))
        return self.grad_out

    def weight_grad(self) -> dict[str, bytes]:
        """Bytes of each parameter's gradient, zeros for null."""
        self.c.grads = self.grads
        self.driver.call("weight_grad", byref(self.c))
        sizes = [4 * torch.Size(t.shape[: t.rank]).numel() for t in self.driver.tensors(self.stage)]
        return {name: ctypes.string_at(at, size) if at else bytes(size)
                for name, at, size in zip(self.driver.names(self.stage), self.grads, sizes)}

    def finish(self) -> dict[str, bytes]:
        found = self.weight_grad()
        self.driver.table.drop(None, self.stage, self.c.slot)
        return found


def floats(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.float32) if data else torch.empty(0)
