"""Every rank's part of every tensor: the same box as PyTorch's own, all parts together each element once."""

from __future__ import annotations

import itertools
import tempfile
import unittest
from typing import Any

import ranks  # first: it skips where there is no torch

import torch
import torch.distributed as td
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from pawl import _shard, errors

SHAPES = [(), (0,), (1,), (3,), (5,), (3, 4), (5, 5), (2, 0), (64, 33)]
MESHES = [(4,), (2, 2), (3,)]


def placements_of(shape: tuple[int, ...], mesh: tuple[int, ...]) -> list[tuple[Any, ...]]:
    one: list[Any] = [Replicate()] + [Shard(d) for d in range(len(shape))]
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


def rank_boxes(rank: int, world: int, folder: str, mesh_shape: tuple[int, ...]) -> None:
    mesh = init_device_mesh("cpu", mesh_shape)
    cases = [(shape, placements) for shape in distributable()
             for placements in placements_of(shape, mesh_shape)]
    covered = []  # how often each element of each case is saved here, and how many pieces there are
    for shape, placements in cases:
        full = arange(shape)
        tensor = distribute_tensor(full, mesh, placements)
        what = f"rank {rank} of mesh {mesh_shape}, shape {shape}, {placements}"
        read = _shard.whole("t", tensor)
        if read is not None:
            check_box(full, read, what)
            assert not read.view.numel() or read.view.data_ptr() == tensor.to_local().data_ptr(), what
        pieces = _shard.mine("t", tensor, rank, world)
        for piece in pieces:
            check_box(full, piece, what)
        covered.append(torch.cat([counts(full, pieces).flatten(), torch.tensor([float(len(pieces))])]))
    everywhere = torch.cat(covered)
    td.all_reduce(everywhere)
    for case, count in zip(cases, everywhere.split([len(c) for c in covered])):
        assert torch.equal(count[:-1], torch.ones(len(count) - 1)), f"{case} is saved {count[:-1]} times"
        assert count[-1] >= 1, f"{case} is saved by nobody"
        assert len(count) > 1 or count[-1] == 1, f"{case} is empty, and saved {count[-1]} times"
    summed = DTensor.from_local(arange((4,)), mesh, [Partial()] * len(mesh_shape))
    try:
        _shard.mine("bad", summed, rank, world)
        raise AssertionError("a sum that is not done was taken")
    except errors.Unsupported as e:
        assert str(e).startswith("bad: placement"), e


    cut = [Replicate()] * (len(mesh_shape) - 1) + [Shard(0)]
    uneven = DTensor.from_local(arange((rank + 2, 2)), mesh, cut, run_check=False, shape=torch.Size((8, 2)),
                                stride=(2, 1))
    box = _shard.box_of("t", (8, 2), mesh_shape, tuple(mesh.get_coordinate() or ()), tuple(uneven.placements))
    try:
        _shard.mine("cut", uneven, rank, world)
        assert box[1] == (rank + 2, 2), f"{box} of a shard of {rank + 2} rows"
    except errors.Unsupported as e:
        assert box[1] != (rank + 2, 2) and "cut: its shard on this rank" in str(e), e


class ShardTest(unittest.TestCase):
    def test_a_dimension_counted_from_the_end_is_that_one(self) -> None:
        for shard in (Shard(-1), Shard(1)):
            self.assertEqual(((0, 3), (4, 3), 1, 0), _shard.box_of("t", (4, 6), (2,), (1,), (shard,)))

    def test_boxes_are_those_of_pytorch_and_cover_every_element_once(self) -> None:
        for mesh in MESHES:
            with self.subTest(mesh=mesh), tempfile.TemporaryDirectory() as folder:
                ranks.run(rank_boxes, torch.Size(mesh).numel(), folder, mesh)

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
                    once = torch.equal(counts(full, pieces), torch.ones(shape))
                    self.assertTrue(once, f"{shape} of {world}")
                    self.assertGreaterEqual(len(pieces), 1)

    def test_large_tensors_are_shared_evenly_and_small_ones_have_one_owner(self) -> None:
        large = [sum(p.view.numel() for p in _shard.mine("w", torch.zeros(1000, 10), r, 4)) for r in range(4)]
        self.assertEqual(large, [2500] * 4)
        self.assertEqual(sum(len(_shard.mine("w", torch.zeros(10, 10), r, 4)) for r in range(4)), 1)


if __name__ == "__main__":
    unittest.main()
