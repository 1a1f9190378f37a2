"""Parameters that do not lie row-major are captured late and in place, and come back bit for bit into any
layout."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

from pawl import _native, _shard, errors  # noqa: E402
from pawl.checkpointer import Checkpointer  # noqa: E402

torch.set_num_threads(1)


class Turned(torch.nn.Module):
    """A convolution (channels last if asked for) and a transposed parameter."""

    def __init__(self, seed: int, last: bool = True) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = torch.nn.Conv2d(4, 8, 3)
        turned = torch.randn(72, 8).t()
        self.turned = torch.nn.Parameter(turned if last else turned.contiguous())
        if last:
            weight = self.conv.weight.detach().contiguous(memory_format=torch.channels_last)
            self.conv.weight = torch.nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).flatten(1) @ self.turned.t()


def build(seed: int, last: bool = True) -> tuple[Any, Any]:
    model = Turned(seed, last)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any, steps: int) -> None:
    for i in range(steps):
        optimizer.zero_grad()
        x = torch.arange(2 * 4 * 5 * 5, dtype=torch.float32).reshape(2, 4, 5, 5) / (100 + i)
        model(x).square().mean().backward()
        optimizer.step()


def bits(model: Any, optimizer: Any) -> dict[str, torch.Tensor]:
    out = {n: v.detach().clone() for n, v in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        out.update({f"{name}/{k}": v.clone() for k, v in optimizer.state[parameter].items()})
    return out


class StridedTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "run"

    def same(self, a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
        self.assertEqual(set(a), set(b))
        for name, tensor in a.items():
            self.assertTrue(torch.equal(tensor, b[name]), name)

    def saved(self) -> tuple[Any, Any]:
        model, optimizer = build(1)
        train(model, optimizer, 3)
        with Checkpointer(self.path, model=model, optimizer=optimizer, every=1, signals=()) as ckpt:
            ckpt.step(3)
        return model, optimizer

    def test_no_dense_copy_is_made_in_save(self) -> None:
        model, optimizer = build(1)
        train(model, optimizer, 1)
        self.assertFalse(model.conv.weight.is_contiguous())
        self.assertFalse(model.turned.is_contiguous())
        with Checkpointer(self.path, model=model, optimizer=optimizer, every=1, signals=()) as ckpt:
            ckpt.step()
            held = {a for part in ckpt._gatherer._parts for a in part.addresses}
            for parameter in model.parameters():
                self.assertIn(parameter.data_ptr(), held)
                for key in ("exp_avg", "exp_avg_sq"):
                    self.assertIn(optimizer.state[parameter][key].data_ptr(), held)
            handles = len(ckpt._ckpt._declared)
            for _ in range(3):  # the memory stays where it is: declared once
                train(model, optimizer, 1)
                ckpt.step()
            self.assertEqual(len(ckpt._ckpt._declared), handles)

    def test_a_resume_continues_bit_for_bit_in_the_same_layout(self) -> None:
        model, optimizer = self.saved()
        other, second = build(2)
        lay = other.conv.weight.data_ptr()
        with Checkpointer(self.path, model=other, optimizer=second, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 3)
        self.same(bits(other, second), bits(model, optimizer))
        self.assertEqual(other.conv.weight.data_ptr(), lay)
        for parameter in other.parameters():
            self.assertEqual(second.state[parameter]["exp_avg"].stride(), parameter.stride())
        train(model, optimizer, 3)
        train(other, second, 3)
        self.same(bits(other, second), bits(model, optimizer))

    def test_a_resume_into_other_strides_gets_the_same_values(self) -> None:
        model, optimizer = self.saved()
        other, second = build(2, last=False)
        with Checkpointer(self.path, model=other, optimizer=second, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 3)
        self.assertTrue(other.turned.is_contiguous())
        self.same(bits(other, second), bits(model, optimizer))

    def test_what_is_stored_is_row_major(self) -> None:
        model, _ = self.saved()
        with _native.Reader(self.path) as reader:
            found = {t.name: t for t in reader.tensors(0)}
            for name in ("conv.weight", "turned"):
                got = torch.empty(found[f"model/{name}"].shape)
                reader.read(0, [found[f"model/{name}"]._replace(address=got.data_ptr())])
                self.assertTrue(torch.equal(got, model.get_parameter(name)), name)

    def test_a_parameter_that_moved_to_other_strided_memory_is_declared_again(self) -> None:
        model, optimizer = build(1)
        with Checkpointer(self.path, model=model, optimizer=optimizer, every=1, signals=()) as ckpt:
            ckpt.step()
            ckpt.fence()
            moved = torch.randn(72, 8).t()
            model.turned.data = moved
            ckpt.step()
            ckpt.wait()
        other, second = build(2)
        with Checkpointer(self.path, model=other, optimizer=second, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 2)
        self.assertTrue(torch.equal(other.turned, moved))

    def test_a_change_before_the_fence_is_detected(self) -> None:
        model, optimizer = build(1)
        with Checkpointer(self.path, model=model, optimizer=optimizer, every=1, debug=True,
                          signals=()) as ckpt:
            ckpt.step()
            with torch.no_grad():
                model.turned.mul_(2)
            with self.assertRaisesRegex(errors.Diverged, "model/turned"):
                ckpt.fence()

    def test_expanded_parameters_and_buffers_are_refused_by_name(self) -> None:
        for make in (torch.nn.Parameter, lambda t: t):
            model = torch.nn.Linear(2, 2)
            value = make(torch.randn(3, 1).expand(3, 4))
            model.register_parameter("wide", value) if isinstance(
                value, torch.nn.Parameter) else model.register_buffer("wide", value)
            with Checkpointer(self.path, model=model, every=1, signals=()) as ckpt:
                with self.assertRaisesRegex(errors.Unsupported, r"model/wide: .*\(1, 0\).*expand"):
                    ckpt.step()
        model = torch.nn.Linear(2, 2)
        model.register_buffer("ids", torch.arange(4).expand(1, -1))  # shares nothing
        with Checkpointer(self.path, model=model, every=1, signals=()) as ckpt:
            self.assertTrue(ckpt.step())

    def test_optimizer_state_that_is_expanded_is_copied(self) -> None:
        model, optimizer = build(1)
        train(model, optimizer, 1)
        wide = torch.randn(8, 1).expand(8, 72)
        optimizer.state[model.turned]["exp_avg"] = wide
        with Checkpointer(self.path, model=model, optimizer=optimizer, every=1, signals=()) as ckpt:
            ckpt.step()
        other, second = build(2)
        with Checkpointer(self.path, model=other, optimizer=second, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 1)
        self.assertTrue(torch.equal(second.state[other.turned]["exp_avg"], wide))

    def test_elements_that_lie_apart_are_told_from_those_that_do_not(self) -> None:
        base = torch.zeros(64)
        for size, stride, apart in (((2, 3), (3, 1), True), ((2, 3), (1, 2), True), ((2, 3), (8, 2), True),
                                    ((2, 3), (0, 1), False), ((2, 3), (1, 1), False), ((2, 3), (2, 1), False),
                                    ((1, 3), (0, 1), True), ((3, 2, 2), (16, 1, 4), True), ((), (), True)):
            self.assertEqual(_shard.is_apart(base.as_strided(size, stride)), apart, (size, stride))


if __name__ == "__main__":
    unittest.main()
