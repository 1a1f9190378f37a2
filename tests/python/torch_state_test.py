"""What of modules and optimizers is stored, under which names, and that it comes back to the bit."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import unittest
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402
from torch import nn  # noqa: E402

import pawl  # noqa: E402
from pawl import _torch, errors  # noqa: E402

torch.set_num_threads(1)


class Odd(nn.Module):
    """Tied, shared, strided, empty and scalar tensors of many types, and extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        base = torch.randn(12)
        self.register_buffer("left", base[:8])
        self.register_buffer("right", base[4:])
        self.register_buffer("across", torch.randn(3, 5).t())
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("scalar", torch.tensor(3.5))
        self.register_buffer("unsaved", torch.randn(2), persistent=False)
        for dtype in _torch.DTYPES:
            raw = torch.randint(0, 2, (16,), dtype=torch.uint8)
            self.register_buffer("type_" + str(dtype).removeprefix("torch."), raw.view(dtype).clone())
        self.extra: object = {"seen": (1, 2)}

    def get_extra_state(self) -> object:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


def bits(tensor: Any) -> list[int]:
    out: list[int] = tensor.detach().contiguous().flatten().view(torch.uint8).tolist()
    return out


def names(path: str) -> set[str]:
    from pawl._native import Reader
    with Reader(path) as reader:
        index = reader.newest()
        assert index is not None
        return {t.name for t in reader.tensors(index)}


class TorchState(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = self.folder.name + "/run"

    def save(self, **objects: Any) -> None:
        with pawl.Checkpointer(self.path, every=1000, **objects) as ckpt:
            ckpt.step()
            ckpt.save()

    def load(self, **objects: Any) -> None:
        with pawl.Checkpointer(self.path, every=1000, **objects) as ckpt:
            self.assertEqual(1, ckpt.resume())

    def test_every_kind_of_tensor_comes_back(self) -> None:
        was, now = Odd(), Odd()
        was.extra = {"seen": (7,)}
        self.save(model=was)
        self.load(model=now)
        self.assertEqual({"seen": (7,)}, now.extra)
        self.assertIs(now.a.weight, now.b.weight)
        stored = was.state_dict()
        for name, tensor in now.state_dict().items():
            if isinstance(tensor, torch.Tensor):
                self.assertEqual(bits(stored[name]), bits(tensor), name)
        self.assertIn("model/a.weight", names(self.path))
        self.assertNotIn("model/b.weight", names(self.path))
        self.assertNotEqual(bits(was.unsaved), bits(now.unsaved))

    def test_optimizer_state_goes_by_names_of_parameters(self) -> None:
        was = nn.ModuleDict({"x": nn.Linear(2, 2), "y": nn.Linear(2, 2)})
        now = nn.ModuleDict({"y": nn.Linear(2, 2), "x": nn.Linear(2, 2)})
        opt = torch.optim.Adam(was.parameters(), lr=0.5)
        other = torch.optim.Adam(now.parameters())
        (was["x"](torch.ones(2)).sum() + 2 * was["y"](torch.ones(2)).sum()).backward()
        opt.step()
        self.save(model=was, optimizer=opt)
        self.assertIn("optimizer/x.weight/exp_avg", names(self.path))
        self.load(model=now, optimizer=other)
        for name, parameter in was.named_parameters():
            there = dict(now.named_parameters())[name]
            for key, value in opt.state[parameter].items():
                self.assertEqual(bits(value), bits(other.state[there][key]), (name, key))
        self.assertEqual(0.5, other.param_groups[0]["lr"])

    def test_an_optimizer_with_lists_of_tensors_comes_back(self) -> None:
        was, now = nn.Linear(3, 1), nn.Linear(3, 1)
        opt, other = torch.optim.LBFGS(was.parameters()), torch.optim.LBFGS(now.parameters())

        def closure() -> torch.Tensor:
            opt.zero_grad()
            loss = was(torch.eye(3)).square().sum()
            loss.backward()
            return loss

        opt.step(closure)
        self.save(model=was, optimizer=opt)
        self.load(model=now, optimizer=other)
        a, b = opt.state[was.weight], other.state[now.weight]
        self.assertEqual([bits(t) for t in a["old_dirs"]], [bits(t) for t in b["old_dirs"]])
        self.assertEqual(a["n_iter"], b["n_iter"])

    def test_all_differences_are_listed_and_nothing_is_loaded(self) -> None:
        was = nn.ModuleDict({"x": nn.Linear(2, 2), "y": nn.Linear(2, 2)})
        now = nn.ModuleDict({"x": nn.Linear(2, 3), "z": nn.Linear(2, 2), "y": nn.Linear(2, 2).half()})
        self.save(model=was, notes={"epoch": 1})
        before = [bits(p) for p in now.parameters()]
        notes = {"epoch": 0}
        with pawl.Checkpointer(self.path, model=now, others=notes) as ckpt, \
                self.assertRaises(pawl.StateMismatch) as caught:
            ckpt.resume()
        for part in ("model/x.weight: stored F32 (2, 2), here F32 (3, 2)", "model/z.weight: here",
                     "notes: stored",
                     "model/y.bias: stored F32 (2,), here F16 (2,)", "others: given", "model/x.bias"):
            self.assertIn(part, str(caught.exception))
        self.assertEqual(before, [bits(p) for p in now.parameters()])
        self.assertEqual({"epoch": 0}, notes)

    def test_an_optimizer_without_its_model_is_refused(self) -> None:
        model = nn.Linear(2, 2)
        with self.assertRaisesRegex(pawl.StateMismatch, "model="):
            pawl.Checkpointer(self.path, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    def test_what_cannot_be_saved_is_named(self) -> None:
        model = nn.Module()
        model.register_buffer("sparse", torch.eye(2).to_sparse())
        with pawl.Checkpointer(self.path, model=model) as ckpt:
            ckpt.step()
            with self.assertRaisesRegex(errors.Unsupported, "model/sparse.*layout"):
                ckpt.save()
        with self.assertRaisesRegex(errors.Unsupported, "thing: .*state_dict"):
            pawl.Checkpointer(self.path, thing=object())

    def test_tensors_in_plain_values_are_copied_at_once(self) -> None:
        notes = {"mean": torch.ones(4)}
        with pawl.Checkpointer(self.path, every=1000, model=nn.Linear(2, 2), notes=notes) as ckpt:
            ckpt.step()
            ckpt.save()
            notes["mean"].zero_()
        now = {"mean": torch.zeros(4)}
        self.load(model=nn.Linear(2, 2), notes=now)
        self.assertEqual([1.0] * 4, now["mean"].tolist())


if __name__ == "__main__":
    unittest.main()
