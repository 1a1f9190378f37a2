"""A save is handed what the state is now, whether it was looked at anew or taken from the last time."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import unittest
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch
from torch import nn

from pawl import _gather, _torch

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3, bias=False)
        self.turned = nn.Parameter(torch.randn(3, 5).t())  # not contiguous
        self.square = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.norm(self.first(x))).sum() + self.turned.sum() + self.square.sum()
        return out


def bytes_of(found: _gather.Found) -> dict[str, bytes]:
    sizes = {text: torch.empty(0, dtype=dtype).element_size() for text, dtype in _torch.TORCH_OF.items()}
    out = {}
    for tensor, address in zip(found.tensors, found.addresses, strict=True):
        size = sizes[tensor.dtype]
        for extent in tensor.extent or tensor.shape:
            size *= extent
        out[tensor.name] = ctypes.string_at(address, size) if size else b""
    return out


class GatherTest(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(7)
        self.net = Net()
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.extra: dict[str, Any] = {"epoch": 1, "seen": torch.arange(3)}
        self.gatherer = self.fresh()
        self.train()

    def fresh(self) -> _gather.Gatherer:
        states = _torch.states({"model": self.net, "optimizer": self.opt, "extra": self.extra})
        return _gather.Gatherer(states, rank=0, world=1, rng=True)

    def train(self) -> None:
        self.opt.zero_grad()
        self.net(torch.randn(8, 4)).backward()
        self.opt.step()

    def check(self) -> _gather.Found:
        """The gatherer that has seen earlier states says what one says that has seen none."""
        other = self.fresh()
        found, anew = self.gatherer.gather(5), other.gather(5)
        self.assertEqual(json.loads(found.blob), json.loads(anew.blob))
        self.assertEqual(found.tensors, anew.tensors)
        self.assertEqual(bytes_of(found), bytes_of(anew))
        self.names = [(e.name, e.late) for e in self.gatherer.entries()]
        self.assertEqual(self.names, [(e.name, e.late) for e in other.entries()])
        for mine, its in zip(self.gatherer.entries(), other.entries(), strict=True):
            self.assertIs(mine.tensor, its.tensor, mine.name)
        self.gatherer.release()
        self.assertEqual(self.gatherer.entries(), [])
        return found

    def test_steps_after_one_another_are_told_as_they_are(self) -> None:
        first = self.check()
        for _ in range(3):
            self.train()
            self.extra["epoch"] += 1
            self.extra["seen"].add_(1)
            self.opt.param_groups[0]["lr"] *= 0.5
            self.assertIs(self.check().tensors, first.tensors, "the same tensors would be declared again")

    def test_nothing_is_collected_where_all_is_in_place(self) -> None:
        self.check()
        states: list[Any] = [part.state for part in self.gatherer._parts]
        for state in [s for s in states if not isinstance(s, _torch.ObjectState)]:
            state.collect = lambda: self.fail("collected again")
        self.train()
        self.gatherer.gather(6)

    def test_a_parameter_elsewhere_is_told(self) -> None:
        self.check()
        self.net.last.weight.data = torch.randn(3, 6)
        self.check()
        self.net.square.data = self.net.square.data.t()  # the same address, shape and type
        self.check()

    def test_another_shape_type_or_name_is_told(self) -> None:
        self.check()
        assert self.net.norm.running_mean is not None
        self.net.norm.running_mean.resize_(2)
        self.check()
        self.net.norm.running_mean = torch.zeros(6, dtype=torch.float64)
        self.check()
        self.net.register_buffer("more", torch.ones(2))
        self.check()
        del self.net.more
        self.check()

    def test_a_buffer_that_becomes_a_parameter_is_captured_late(self) -> None:
        self.net.register_buffer("scale", torch.ones(2))
        self.check()
        self.assertIn(("model/scale", False), self.names)
        value: Any = self.net.scale
        del self.net.scale
        self.net.scale = nn.Parameter(value, requires_grad=False)
        self.check()
        self.assertIn(("model/scale", True), self.names)

    def test_state_of_the_optimizer_that_changes_is_told(self) -> None:
        self.check()
        state = self.opt.state[self.net.last.weight]
        state["exp_avg"] = torch.randn(3, 6)
        self.check()
        state["more"] = torch.ones(1)
        self.check()
        state["rounds"] = 3
        self.check()
        state["rounds"] = 4
        self.check()
        del self.opt.state[self.net.last.weight]
        self.check()
        self.opt.state[self.net.last.weight] = {}
        self.check()

    def test_groups_and_their_options_are_told(self) -> None:
        more = nn.Parameter(torch.ones(2))
        self.check()
        self.net.more = more
        self.opt.add_param_group({"params": [more], "lr": 3.0})
        self.check()
        self.opt.param_groups[1]["lr"] = torch.tensor(0.25)
        self.check()
        self.opt.param_groups[1]["lr"] = torch.tensor(0.5)
        self.check()
        self.opt.param_groups[0]["params"].append(self.opt.param_groups.pop()["params"][0])
        self.check()

    def test_memory_that_is_being_captured_stays(self) -> None:
        self.check()
        found = self.gatherer.gather(6)
        before = bytes_of(found)
        for parameter in self.net.parameters():
            parameter.data = torch.zeros_like(parameter)
        junk = [torch.full_like(p, 7.0) for p in self.net.parameters() for _ in range(20)]
        self.assertEqual(bytes_of(found), before, f"memory was taken again by one of {len(junk)} tensors")


if __name__ == "__main__":
    unittest.main()
