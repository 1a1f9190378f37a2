"""What goes from stage to stage: one tensor or a tuple of them, as bytes.

Each tensor lies row-major without gaps, in its own type, at a multiple of ALIGN bytes; the whole is a
multiple of it, too. Gradients go back in the same layout: those of floating tensors in their place and type,
zeros in the place of all other bytes. Shapes and types are those of a sample micro-batch. Tested in
tests/python/pipeline_test.py.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence

import torch

from . import errors

ALIGN = 64  # bytes, as torch's own memory: the bits of a matrix product may depend on it


class Part(NamedTuple):
    """One tensor. at: its first byte."""

    dtype: Any
    shape: tuple[int, ...]
    at: int
    bytes: int


class Wire(NamedTuple):
    """The output of a stage. many: a tuple, else a tensor."""

    parts: tuple[Part, ...]
    many: bool
    bytes: int

    def told(self) -> str:
        names = [f"{str(part.dtype).removeprefix('torch.')}{list(part.shape)}" for part in self.parts]
        return f"({', '.join(names)})" if self.many else names[0]


def of_output(output: Any, where: str) -> Wire:
    """The layout of what a stage returned. Argument: no tensor or tuple of tensors that can be sent."""
    many = isinstance(output, (tuple, list))
    parts, at = [], 0
    for tensor in output if many else (output,):
        _check(tensor, where)
        size = tensor.numel() * tensor.element_size()
        parts.append(Part(tensor.dtype, tuple(tensor.shape), at, size))
        at += -(-size // ALIGN) * ALIGN
    if at == 0:
        raise errors.Argument(f"{where} returns no element: the next stage would have nothing to work on")
    return Wire(tuple(parts), many, at)


def _check(tensor: Any, where: str) -> None:
    wanted = "a tensor or a tuple of tensors is wanted of every stage but the last"
    if not isinstance(tensor, torch.Tensor):
        raise errors.Argument(f"{where} returns {type(tensor).__name__}: {wanted}")
    if (
        tensor.layout != torch.strided
        or tensor.is_complex()
        or tensor.is_quantized
        or tensor.device.type != "cpu"
    ):
        raise errors.Argument(
            f"{where} returns a tensor of {tensor.dtype}, {tensor.layout}, on {tensor.device}: a dense "
            "one of floating, integer or bool type on the processor is wanted"
        )


def pack(wire: Wire, tensors: Sequence[Any], address: int) -> None:
    """Writes tensors of the wire's shapes and types; None: zeros."""
    if any(tensor is None for tensor in tensors) or wire.bytes != sum(part.bytes for part in wire.parts):
        ctypes.memset(address, 0, wire.bytes)
    for part, tensor in zip(wire.parts, tensors, strict=True):
        if tensor is not None and part.bytes:
            at(address + part.at, part.dtype, part.shape).copy_(tensor.detach())


def at(address: int, dtype: Any, shape: tuple[int, ...]) -> Any:
    """The tensor that lies at an address, without a copy. It must not outlive the memory."""
    count = 1
    for extent in shape:
        count *= extent
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
