"""What others saved becomes a run that Checkpointer resumes from, and goes back out equal bit for bit."""

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

from pawl import _abi, _optimizers, _safetensors, _torch, errors, migrate  # noqa: E402
from pawl.__main__ import main  # noqa: E402
from pawl.checkpointer import Checkpointer  # noqa: E402

torch.set_num_threads(1)


def trained(steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    more(model, opt, steps)
    return model, opt


def more(model: torch.nn.Module, opt: torch.optim.Optimizer, steps: int) -> None:
    for i in range(steps):
        opt.zero_grad()
        model(torch.full((3, 4), 0.1 * i + 1)).square().mean().backward()
        opt.step()


class Migrate(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = Path(folder.name)

    def saved(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        if torch.__version__.startswith("1."):
            self.skipTest("torch.load(weights_only=True) of PyTorch 1 reads no floats: no optimizer can be "
                          "imported")
        model, opt = trained(5)
        torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, self.at / "a.pt")
        return model, opt

    def same(self, a: torch.nn.Module, b: torch.nn.Module) -> None:
        for name, tensor in a.state_dict().items():
            self.assertTrue(torch.equal(tensor, b.state_dict()[name]), name)

    def test_training_goes_on_from_a_torch_file_as_if_never_stopped(self) -> None:
        model, opt = self.saved()
        migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW")
        other, second = trained(0)
        with Checkpointer(self.at / "run", model=other, optimizer=second, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 5)
            self.same(model, other)
            more(model, opt, 3)
            more(other, second, 3)
        self.same(model, other)

    def test_an_export_in_shards_comes_back_bit_for_bit(self) -> None:
        model, _ = self.saved()
        migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW")
        self.assertEqual(migrate.export(self.at / "run", self.at / "hf", shard_bytes=130), 5)
        where = json.loads((self.at / "hf" / migrate.INDEX).read_text())["weight_map"]
        self.assertEqual(set(where), set(model.state_dict()))
        self.assertGreater(len(set(where.values())), 1)
        for name, file in where.items():
            data = bytearray((self.at / "hf" / file).read_bytes())
            item = _safetensors.parse(data, file)[name]
            got = torch.frombuffer(data[item.offset:item.offset + item.size], dtype=torch.float32)
            self.assertTrue(torch.equal(got.view(item.shape), model.state_dict()[name]), name)
        migrate.import_safetensors(self.at / "hf", self.at / "again", step=7)
        other, _ = trained(0)
        with Checkpointer(self.at / "again", model=other, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 7)
        self.same(model, other)

    def test_an_optimizer_that_does_not_fit_is_refused_and_makes_no_run(self) -> None:
        self.saved()
        names = ["0.bias", "0.weight", "2.weight", "2.bias"]
        with self.assertRaisesRegex(errors.StateMismatch, "0.bias: shape \\(8,\\), its exp_avg"):
            migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW",
                                 names=names)
        with self.assertRaisesRegex(errors.StateMismatch, "4 parameters, there are 3"):
            migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW",
                                 names=names[:3])
        self.assertFalse((self.at / "run").exists())

    def test_the_class_of_an_optimizer_has_to_fit_its_state(self) -> None:
        self.saved()
        for wrong, kind, wanted in (
            ("SGD", errors.StateMismatch, "not of SGD: .*dampening, momentum, nesterov.* be of Adam, AdamW$"),
            ("torch.optim.RAdam", errors.StateMismatch, "the options amsgrad of Adam, and RAdam does not"),
            ("adamw", errors.Argument, "torch.optim has no adamw; near are .*AdamW"),
            (None, errors.Argument, "--optimizer, optimizer_class=.*Adam, AdamW$"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(kind, wanted):
                migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class=wrong)
            self.assertFalse((self.at / "run").exists())
        for n, fits in enumerate(("Adam", "torch.optim.AdamW", "package.Lion")):
            migrate.import_torch(self.at / "a.pt", self.at / f"run{n}", step=5, optimizer_class=fits)
        model, _ = trained(0)
        for n, had in enumerate(("Adam", "AdamW", "Lion")):
            sgd = torch.optim.SGD(model.parameters(), lr=0.01)
            with Checkpointer(self.at / f"run{n}", model=model, optimizer=sgd, signals=()) as ckpt, \
                    self.assertRaisesRegex(errors.StateMismatch, f"the state of {had}, this is SGD"):
                ckpt.resume()

    def test_every_optimizer_of_torch_fits_its_own_state_and_few_others_do(self) -> None:
        same = {"Adam": {"Adam", "AdamW"}, "AdamW": {"Adam", "AdamW"}}
        for name in _optimizers.known():
            weight = torch.nn.Parameter(torch.ones(2, 2))
            opt = getattr(torch.optim, name)([weight], lr=0.1)
            weight.grad = torch.ones(2, 2).to_sparse() if name == "SparseAdam" else torch.ones(2, 2)
            opt.step(lambda: torch.ones(()))
            stored = opt.state_dict()
            options = {key for group in stored["param_groups"] for key in group}
            fits = _optimizers.fitting(options, map(set, stored["state"].values()))
            self.assertEqual(set(fits), same.get(name, {name}))

    def test_the_usual_names_of_entries_are_found_and_others_can_be_given(self) -> None:
        model, opt = self.saved()
        m, o = model.state_dict(), opt.state_dict()
        told = io.StringIO()
        for n, (content, words, left) in enumerate((
            ({"epoch": 3, "model_state_dict": m, "optimizer_state_dict": o, "loss": 0.5}, [], "epoch, loss"),
            ({"state_dict": m, "optimizer_states": [o], "loops": {"a": 1}}, [], "loops"),
            ({"net": m, "adam": o}, ["--model-key", "net", "--optimizer-key", "adam"], ""),
            ({"model": m, "net": m, "optimizer": o}, ["--model-key", "net"], "model"),
        )):
            torch.save(content, self.at / "b.pt")
            run = str(self.at / f"run{n}")
            words = ["import", str(self.at / "b.pt"), run, "--step", "5", "--optimizer", "AdamW", *words]
            with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(main(words), 0, told.getvalue())
            self.assertEqual(told.getvalue(), f"pawl: left out of {self.at}/b.pt: {left}\n" if left else "")
            told.truncate(told.seek(0))
            other, second = trained(0)
            with Checkpointer(run, model=other, optimizer=second, signals=()) as ckpt:
                self.assertEqual(ckpt.resume(), 5)
            self.same(model, other)
            self.assertEqual(len(second.state_dict()["state"]), 4)

    def test_entries_that_say_nothing_are_listed_with_the_option_to_give(self) -> None:
        model, opt = self.saved()
        m, o = model.state_dict(), opt.state_dict()
        cases: list[tuple[Any, dict[str, Any], type[errors.Error], str]] = [
            ({"net": m, "epoch": 3}, {}, errors.Format,
             "--model-key.* net \\(a OrderedDict of 4\\), epoch \\(a int\\)$"),
            ({"model": m, "state_dict": m}, {}, errors.Format, "has model and state_dict: .*--model-key"),
            ({"model": m}, {"model_key": "net"}, errors.Argument, "--model-key net: no dict.*model \\("),
            ({"model": m, "adam": o}, {"optimizer_class": "AdamW"}, errors.Argument, "--optimizer-key.*adam"),
            ({"model": m, "optimizer_states": [o, o]}, {}, errors.Unsupported, "2 optimizers, wanted one"),
            ({"model": [m]}, {}, errors.Format, "the model is a list"),
        ]
        for content, options, kind, wanted in cases:
            torch.save(content, self.at / "b.pt")
            with self.subTest(wanted), self.assertRaisesRegex(kind, wanted):
                migrate.import_torch(self.at / "b.pt", self.at / "run", step=5, **options)
            self.assertFalse((self.at / "run").exists())

    def test_wrong_use_ends_with_the_exit_code_of_a_bad_argument(self) -> None:
        for words in ([], ["no"], ["import", "a"], ["import", "a", "b", "--step", "x"], ["export", "--no"]):
            told = io.StringIO()
            with contextlib.redirect_stderr(told):
                self.assertEqual(main(words), errors.Argument.exit_code)
            self.assertRegex(told.getvalue(), "^usage: .*pawl(.|\\n)*\\npawl: .+\\n$")

    def test_a_file_with_code_in_it_is_refused_and_not_run(self) -> None:
        class Bad:
            def __reduce__(self) -> Any:
                return os.mkdir, (str(marker),)
        marker = self.at / "ran"
        torch.save({"model": Bad()}, self.at / "bad.pt")
        self.assertEqual(main(["import", str(self.at / "bad.pt"), str(self.at / "r"), "--step", "1"]), 65)
        self.assertFalse(marker.exists())

    def test_every_cut_of_a_safetensors_file_is_refused(self) -> None:
        self.saved()
        migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW")
        migrate.export(self.at / "run", self.at / "hf")
        data = (self.at / "hf" / "model.safetensors").read_bytes()
        for length in range(len(data)):
            with self.assertRaises(errors.Format):
                _safetensors.parse(data[:length], "cut")
        self.assertEqual(len(_safetensors.parse(data, "whole")), 4)

    def test_types_and_their_sizes_are_those_of_the_library(self) -> None:
        for dtype, name in _torch.DTYPES.items():
            wanted = 3 * torch.empty(0, dtype=dtype).element_size()
            self.assertEqual(_safetensors.size_of(name, (3,), name), wanted)
        self.assertEqual(_safetensors.size_of("F4", (2, 3), "x"), 3)
        self.assertEqual(_safetensors.size_of("F6_E2M3", (4,), "x"), 3)
        for name, shape in (("F4", (3,)), ("F6_E3M2", (2, 1))):
            with self.assertRaisesRegex(errors.Format, "x: .* bits of .* are no whole bytes"):
                _safetensors.size_of(name, shape, "x")
        lines = (Path(__file__).parents[2] / "include/pawl/dtype.def").read_text().splitlines()
        listed = [line[2:-1].replace('"', "").split(", ") for line in lines if line.startswith("X(")]
        self.assertEqual(_abi.dtype_bits(), {text: int(bits) for _, bits, text in listed})


if __name__ == "__main__":
    unittest.main()
