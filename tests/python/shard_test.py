"""Every rank's part of every tensor: the same box as PyTorch's own, all parts together each element once."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import tempfile
import unittest

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
from torch.distributed.tensor import (  # noqa: E402
    DTensor, Partial, Placement, Replicate, Shard, distribute_tensor)

from pawl import _shard, errors  # noqa: E402

SHAPES = [(), (0,), (1,), (3,), (5,), (3, 4), (5, 5), (2, 0), (64, 33)]
MESHES = [(4,), (2, 2), (3,)]


def placements_of(shape: tuple[int, ...], mesh: tuple[int, ...]) -> list[tuple[Placement, ...]]:
    one: list[Placement] = [Replicate()] + [Shard(d) for d in range(len(shape))]
    return list(itertools.product(one, repeat=len(mesh)))


def arange(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def check_box(full: torch.Tensor, piece: _shard.Piece, what: str) -> None:
    box = full
    for d, (begin, extent) in enumerate(zip(piece.begin, piece.extent)):
        box = box.narrow(d, begin, extent)
    place = f"{what}: box {piece.begin} {piece.extent}"
    assert torch.equal(box, piece.view), f"{place} holds {piece.view}, wanted {box}"


def counts(full: torch.Tensor, pieces: list[_shard.Piece]) -> torch.Tensor:
    count = torch.zeros(full.shape)
    for piece in pieces:
        count[tuple(slice(b, b + e) for b, e in zip(piece.begin, piece.extent))] += 1
    return count


def distributable() -> list[tuple[int, ...]]:
    """The shapes that this PyTorch can distribute: 2.6 cannot pad empty rows."""
    try:
        torch.nn.functional.pad(torch.empty(1, 0), [0, 0, 0, 1])
    except RuntimeError:
        return [shape for shape in SHAPES if 0 not in shape[1:]]
    return SHAPES


def run_rank(rank: int, world: int, mesh_shape: tuple[int, ...], file: str) -> None:
    torch.set_num_threads(1)
    td.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", mesh_shape)
    for shape in distributable():
        full = arange(shape)
        for placements in placements_of(shape, mesh_shape):
            tensor = distribute_tensor(full, mesh, placements)
            what = f"rank {rank} of mesh {mesh_shape}, shape {shape}, {placements}"
            read = _shard.whole("t", tensor)
            if read is not None:
                check_box(full, read, what)
                assert not read.view.numel() or read.view.data_ptr() == tensor.to_local().data_ptr(), what
            pieces = _shard.mine("t", tensor, rank, world)
            for piece in pieces:
                check_box(full, piece, what)
            mine = counts(full, pieces)
            td.all_reduce(mine)
            assert torch.equal(mine, torch.ones(shape)), f"{what}: saved {mine} times"
            declared = torch.tensor(len(pieces))
            td.all_reduce(declared)
            assert declared >= 1, f"{what}: saved by nobody"
    summed = DTensor.from_local(arange((4,)), mesh, [Partial()] * len(mesh_shape))
    try:
        _shard.mine("bad", summed, rank, world)
        raise AssertionError("a sum that is not done was taken")
    except errors.Unsupported as e:
        assert str(e).startswith("bad: placement"), e
    td.destroy_process_group()


class ShardTest(unittest.TestCase):
    def test_boxes_are_those_of_pytorch_and_cover_every_element_once(self) -> None:
        for mesh in MESHES:
            with self.subTest(mesh=mesh), tempfile.TemporaryDirectory() as folder:
                world = torch.Size(mesh).numel()
                mp.start_processes(run_rank, (world, mesh, os.path.join(folder, "store")), world,
                                   start_method="fork")

    def test_plain_tensors_are_cut_among_all_ranks_each_element_once(self) -> None:
        for shape in [*SHAPES, (7, 1000), (1, 5000), (2, 4000)]:
            full = arange(shape)
            for world in (1, 2, 3, 4):
                for name in ("a", "model/b"):
                    parts = [_shard.mine(name, full, rank, world) for rank in range(world)]
                    pieces = [p for some in parts for p in some]
                    for piece in pieces:
                        check_box(full, piece, f"{shape} of {world}")
                        self.assertTrue(piece.view.is_contiguous())
                    self.assertTrue(torch.equal(counts(full, pieces), torch.ones(shape)),
                                    f"{shape} of {world}")
                    self.assertGreaterEqual(len(pieces), 1)

    def test_large_tensors_are_shared_evenly_and_small_ones_have_one_owner(self) -> None:
        large = [sum(p.view.numel() for p in _shard.mine("w", torch.zeros(1000, 10), r, 4)) for r in range(4)]
        self.assertEqual(large, [2500] * 4)
        self.assertEqual(sum(len(_shard.mine("w", torch.zeros(10, 10), r, 4)) for r in range(4)), 1)


if __name__ == "__main__":
    unittest.main()
