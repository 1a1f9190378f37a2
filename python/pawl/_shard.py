"""Which part of each tensor a rank saves and which it reads: one unit of a checkpoint a rank, no byte twice.

Promises: the pieces of all ranks together are the whole of every tensor, each element once; who saves what
follows from names, shapes and placements alone, so ranks need not talk about it; every piece is one box whose
memory is a view of the tensor's, nothing is copied or gathered. Public attributes of DTensor only. Tested in
tests/python/shard_test.py."""

from __future__ import annotations

import math
import zlib
from typing import Any, NamedTuple

import torch

from . import errors

# Less than this is not worth a second rank's block of the device.
CUT_BYTES_MIN = 4096


class Piece(NamedTuple):
    """A box of a tensor in global coordinates, in elements, and its memory: a view of shape `extent`."""

    begin: tuple[int, ...]
    extent: tuple[int, ...]
    view: torch.Tensor


def _is_sharded(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What of the tensor lies on this rank: a DTensor's local shard, any other tensor itself."""
    if not _is_sharded(tensor):
        return tensor
    here: torch.Tensor = tensor.detach().to_local()  # type: ignore[attr-defined]
    return here


def _shard_dim(name: str, placement: Any, rank: int) -> int | None:
    """The dimension that a placement cuts, None: it cuts none. Unsupported: unfinished sums, odd cuts."""
    if placement.is_replicate():
        return None
    if type(placement).__name__ == "Shard" and placement.is_shard():
        dim = int(placement.dim)
        return dim + rank if dim < 0 else dim
    raise errors.Unsupported(f"{name}: placement {placement} is not one box of the tensor on each rank: "
                             "wanted Shard or Replicate on every dimension of the mesh; redistribute() it "
                             "first")


class _Place(NamedTuple):
    begin: tuple[int, ...]
    extent: tuple[int, ...]
    copies: int  # ranks that hold this very box
    copy: int  # which of them this one is


def box_of(name: str, shape: tuple[int, ...], mesh: tuple[int, ...], coordinate: tuple[int, ...],
           placements: tuple[Any, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """(begin, extent, copies, copy) of the rank at `coordinate` of a mesh of shape `mesh`. Dimensions of the
    mesh cut from left to right, each into ceil(size / ranks) rows a rank, the last ones less or none."""
    begin, extent, copies, copy = [0] * len(shape), list(shape), 1, 0
    for ranks, mine, placement in zip(mesh, coordinate, placements):
        dim = _shard_dim(name, placement, len(shape))
        if dim is None:
            copies, copy = copies * ranks, copy * ranks + mine
            continue
        rows = -(-extent[dim] // ranks)
        first = min(rows * mine, extent[dim])
        begin[dim], extent[dim] = begin[dim] + first, min(rows, extent[dim] - first)
    return tuple(begin), tuple(extent), copies, copy


def _place(name: str, tensor: Any) -> _Place | None:
    """Of a DTensor's local shard; None: this rank is not in its mesh."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return None
    shape, mesh = tuple(tensor.shape), tuple(tensor.device_mesh.shape)
    place = _Place(*box_of(name, shape, mesh, tuple(coordinate), tuple(tensor.placements)))
    had = tuple(local(tensor).shape)
    if had != place.extent and math.prod(place.extent) + math.prod(had) > 0:
        raise errors.Unsupported(f"{name}: its shard on this rank has shape {had}, {list(tensor.placements)} "
                                 f"on a mesh of {mesh} makes {place.extent}: a shard that is cut unevenly by "
                                 "hand cannot be saved; distribute_tensor() makes even ones")
    return place


def cut(name: str, extent: tuple[int, ...], element_bytes: int, copies: int,
        copy: int) -> tuple[int, int, int] | None:
    """(dimension, first row, rows) that holder `copy` of `copies` equal boxes saves; None: nothing. Small
    boxes have one owner. Boxes are cut along the first dimension longer than 1, so that parts are
    contiguous."""
    turn = (copy + zlib.crc32(name.encode())) % copies
    dim = next((d for d, size in enumerate(extent) if size > 1), None)
    if copies == 1 or dim is None or math.prod(extent) * element_bytes < CUT_BYTES_MIN:
        rows = extent[0] if extent else 1
        return (0, 0, rows) if turn == 0 else None
    first, end = extent[dim] * turn // copies, extent[dim] * (turn + 1) // copies
    return (dim, first, end - first) if end > first else None


def mine(name: str, tensor: torch.Tensor, rank: int, world: int) -> list[Piece]:
    """What rank `rank` of `world` saves of a tensor: none or one piece. Tensors that are no DTensor are taken
    to be the same on all ranks, which share the writing. Unsupported: a shard that is no box."""
    place: _Place | None = _Place((0,) * tensor.dim(), tuple(tensor.shape), world, rank)
    if _is_sharded(tensor):
        place = _place(name, tensor)
    if place is None:
        return []
    empty = math.prod(place.extent) == 0
    if empty and (tensor.numel() > 0 or any(place.begin)):
        return []
    if empty and tensor.numel() == 0 and not _is_first(tensor):
        return []
    part = cut(name, place.extent, tensor.element_size(),
               1 if empty and _is_sharded(tensor) else place.copies,
               0 if empty and _is_sharded(tensor) else place.copy)
    if part is None:
        return []
    view, begin, extent = local(tensor).detach(), list(place.begin), list(place.extent)
    dim, first, rows = part
    if extent:
        view = view.narrow(dim, first, rows)
        begin[dim], extent[dim] = begin[dim] + first, rows
    return [Piece(tuple(begin), tuple(extent), view)]


def _is_first(tensor: Any) -> bool:
    """Does this rank stand at the origin of a DTensor's mesh? Of an empty tensor it alone saves the piece."""
    return not _is_sharded(tensor) or not any(tensor.device_mesh.get_coordinate() or ())


def whole(name: str, tensor: torch.Tensor) -> Piece | None:
    """What this rank reads of a tensor, and into which memory: all of it, or a DTensor's local shard. None:
    nothing lies here. Unsupported: as mine()."""
    if not _is_sharded(tensor):
        return Piece((0,) * tensor.dim(), tuple(tensor.shape), tensor.detach())
    place = _place(name, tensor)
    if place is None or (math.prod(place.extent) == 0 and tensor.numel() > 0):
        return None
    return Piece(place.begin, place.extent, local(tensor))


def is_apart(tensor: torch.Tensor) -> bool:
    """No two of its elements lie in one place, by their strides: each passes what smaller ones reach."""
    reach = 1
    for step, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n > 1):
        if step < reach:
            return False
        reach = step * (size - 1) + reach
    return True


def is_readable(tensor: torch.Tensor) -> bool:
    """The library can copy its elements: they lie in the processor's memory, each in its place."""
    return (tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_conj()
            and not tensor.is_neg() and is_apart(tensor))


def strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """For _native.Tensor: None where elements lie row-major without gaps."""
    return None if tensor.is_contiguous() else tuple(tensor.stride())


def fresh(name: str, shape: tuple[int, ...], dtype: torch.dtype, like: torch.Tensor | None,
          placed: bool = False) -> torch.Tensor:
    """Memory to read a stored tensor into, whole and laid out as `like` is (channels last, transposed), or
    sharded as the DTensor `like`. Of another shape: row-major, and on each rank of the mesh of the DTensor
    `like` where a DTensor was stored (`placed`)."""
    if like is None or (tuple(like.shape) != shape and not (placed and _is_sharded(like))):
        return torch.empty(shape, dtype=dtype)
    if not _is_sharded(like):
        plain = type(like) in (torch.Tensor, torch.nn.Parameter) and like.layout == torch.strided
        if not plain:
            return torch.empty(shape, dtype=dtype)
        return torch.empty_like(like.detach(), dtype=dtype, device="cpu")
    here: Any = like.data
    made: torch.Tensor
    if tuple(like.shape) == shape:
        part = torch.empty(tuple(local(like).shape), dtype=dtype)
        made = type(here).from_local(part, here.device_mesh, here.placements, run_check=False,
                                     shape=torch.Size(shape), stride=here.stride())
        return made
    from torch.distributed.tensor import Replicate
    everywhere = [Replicate()] * here.device_mesh.ndim
    made = type(here).from_local(torch.empty(shape, dtype=dtype), here.device_mesh, everywhere,
                                 run_check=False)
    return made


def in_place(named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those that can be read into where they are: memory of the processor that none of the others shares."""
    spans = []
    for name, tensor in named.items():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and not _is_sharded(tensor):
            continue
        here = local(tensor).detach()
        if here.numel() > 0 and is_readable(here):
            reach = 1 + sum(step * (size - 1) for step, size in zip(here.stride(), here.shape))
            spans.append((here.data_ptr(), here.data_ptr() + reach * here.element_size(), name))
    spans.sort()
    out = {name: named[name] for _, _, name in spans}
    reach, last = 0, ""
    for begin, end, name in spans:
        if begin < reach:
            out.pop(name, None)
            out.pop(last, None)
        if end > reach:
            reach, last = end, name
    return out
