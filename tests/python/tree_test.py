"""Values survive the way to JSON and back, and what cannot is refused by its path."""

from __future__ import annotations

import collections
import importlib.util
import json
import math
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

from pawl import _tree, errors  # noqa: E402


def through(value: object) -> object:
    leaves: dict[str, torch.Tensor] = {}
    text = json.dumps(_tree.encode(value, "x", leaves.__setitem__), allow_nan=False)
    return _tree.decode(json.loads(text), leaves)


class Tree(unittest.TestCase):
    def test_plain_values_come_back_with_their_types(self) -> None:
        for value in (None, True, 7, 2**80, 0.1, -0.0, math.inf, "ü", b"\0\xff", 1 + 2j, [1, [2]], (1, (2,)),
                      {"a": 1}, {1: "b", (2, 3): None}, {"!": "float"}, {3, 1}, frozenset({1}),
                      collections.deque([1, 2], 5), collections.OrderedDict(b=1, a=2),
                      collections.Counter("aab"), torch.Size([2, 3]), torch.bfloat16, torch.device("cpu")):
            with self.subTest(value=value):
                had = through(value)
                self.assertEqual((type(value), repr(value)), (type(had), repr(had)))

    def test_nan_comes_back(self) -> None:
        self.assertTrue(math.isnan(through([math.nan])[0]))  # type: ignore[index]

    def test_tensors_are_leaves_with_paths(self) -> None:
        leaves: dict[str, torch.Tensor] = {}
        tensor = torch.arange(3)
        _tree.encode({"a": [1, tensor]}, "x", leaves.__setitem__)
        self.assertEqual(["x/a/1"], list(leaves))
        self.assertIs(tensor, through([tensor])[0])  # type: ignore[index]

    def test_tensors_inline_keep_bits(self) -> None:
        for tensor in (torch.tensor(-0.0), torch.empty(0, 3),
                       torch.tensor([1.5, math.nan], dtype=torch.bfloat16)):
            had = _tree.decode(json.loads(json.dumps(_tree.encode(tensor, "x", None))), {})
            self.assertEqual((tensor.dtype, tensor.shape), (had.dtype, had.shape))
            self.assertEqual(tensor.flatten().view(torch.uint8).tolist(),
                             had.flatten().view(torch.uint8).tolist())

    def test_a_value_that_cannot_be_saved_is_named_with_its_path(self) -> None:
        with self.assertRaisesRegex(errors.Unsaveable, r"x/a/1.*object"):
            through({"a": [1, object()]})

    def test_a_value_that_contains_itself_is_refused(self) -> None:
        value: list[object] = []
        value.append(value)
        with self.assertRaisesRegex(errors.Unsaveable, "contain itself"):
            through(value)

    def test_damaged_and_unknown_values_are_refused(self) -> None:
        for stored in ({"!": "os.system", "v": "true"}, {"!": "tuple"}, {"!": "deque", "v": []},
                       {"!": "bytes", "v": "?"},
                       {"!": "torch.dtype", "v": "load"}, {"!": ["tuple"], "v": []},
                       {"!": "tensor", "name": "none"}):
            with self.subTest(stored=stored), self.assertRaises(ValueError):
                _tree.decode(stored, {})


if __name__ == "__main__":
    unittest.main()
