"""What others saved becomes a run that Checkpointer resumes from, and goes back out equal bit for bit."""

import contextlib
import errno
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

from pawl import _abi, _native, _optimizers, _safetensors, _torch, errors, migrate  # noqa: E402
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


def safetensors(header: Any, data: bytes = bytes(8)) -> bytes:
    """A file with this header, as it is or as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


class Migrate(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = Path(folder.name)

    def skip_version_1(self) -> None:
        if torch.__version__.startswith("1."):
            self.skipTest("torch.load(weights_only=True) of PyTorch 1 reads no floats: no optimizer can be "
                          "imported")

    def saved(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        self.skip_version_1()
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
        two = 4 * (8 + 8 * 4)  # 0.bias and 0.weight
        self.assertEqual(migrate.export(self.at / "run", self.at / "hf", shard_bytes=two), 5)
        index = json.loads((self.at / "hf" / migrate.INDEX).read_text())
        where = index["weight_map"]
        self.assertEqual(index["metadata"], {"total_size": 4 * (8 * 4 + 8 + 2 * 8 + 2)})
        migrate.export(self.at / "run", self.at / "one_less", shard_bytes=two - 1)
        self.assertEqual(len(list((self.at / "one_less").glob("*.safetensors"))), 3)
        files = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
        self.assertEqual([where[name] for name in sorted(where)], [files[0]] * 2 + [files[1]] * 2)
        self.assertEqual(set(where), set(model.state_dict()))
        for name, file in where.items():
            data = bytearray((self.at / "hf" / file).read_bytes())
            self.assertEqual(int.from_bytes(data[:8], "little") % 8, 0, "tensors begin at whole words")
            item = _safetensors.parse(data, file)[name]
            got = torch.frombuffer(data[item.offset:item.offset + item.size], dtype=torch.float32)
            self.assertTrue(torch.equal(got.view(item.shape), model.state_dict()[name]), name)
        migrate.import_safetensors(self.at / "hf", self.at / "again", step=7)
        other, _ = trained(0)
        with Checkpointer(self.at / "again", model=other, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 7)
        self.same(model, other)

    def test_the_commands_of_the_docs_run_as_printed_and_bring_all_back(self) -> None:
        page = (Path(__file__).parents[2] / "docs/migrating.md").read_text().splitlines()
        shown = [line.split()[3:] for line in page if line.startswith("    python -m pawl ")]
        self.assertEqual([words[1] for words in shown],
                         ["checkpoint.pt", "folder", "model.safetensors", "folder", "runs/a"])
        take, of_ranks, one, folder, give = shown
        model, opt = self.saved()
        import torch.distributed.checkpoint as dcp
        (self.at / "a.pt").rename(self.at / "checkpoint.pt")
        for words in (take, of_ranks, give, folder, one):
            if words is of_ranks:
                content = {"model": model.state_dict(), "optimizer": opt.state_dict()}
                dcp.save(content, checkpoint_id=str(self.at / "folder"))
            if words is one:
                (self.at / "folder/model.safetensors").rename(self.at / "model.safetensors")
            here = [words[0], *(str(self.at / word) for word in words[1:3]), *words[3:]]
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(main(here), 0, words)
            if words is not give:
                self.resumed(model, opt if words in (take, of_ranks) else None)
            shutil.rmtree(self.at / ("folder" if words is of_ranks else "runs"))  # one is made of the other

    def resumed(self, model: torch.nn.Module, opt: torch.optim.Optimizer | None) -> None:
        """runs/a at step 1000 holds the model, and the optimizer's state."""
        other, second = trained(0)
        given: dict[str, Any] = {"optimizer": second} if opt else {}
        with Checkpointer(self.at / "runs/a", model=other, signals=(), **given) as ckpt:
            self.assertEqual(ckpt.resume(), 1000)
        self.same(model, other)
        wanted = opt.state_dict()["state"] if opt else {}
        for i, state in wanted.items():
            for key, value in state.items():
                self.assertTrue(torch.equal(second.state_dict()["state"][i][key], value), (i, key))

    def test_an_optimizer_that_does_not_fit_is_refused_and_makes_no_run(self) -> None:
        self.saved()
        names = ["0.bias", "0.weight", "2.weight", "2.bias"]
        with self.assertRaisesRegex(errors.StateMismatch, "0.bias: shape \\(8,\\), its exp_avg"):
            migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW",
                                 names=names)
        with self.assertRaisesRegex(errors.StateMismatch, "4 parameters, there are 3"):
            migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW",
                                 names=names[:3])
        with self.assertRaisesRegex(errors.StateMismatch, "other: not in the model"):
            migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW",
                                 names=["0.weight", "0.bias", "2.weight", "other"])
        alike = [torch.nn.Parameter(torch.ones(2)) for _ in "ab"]
        opt = torch.optim.AdamW(alike)
        torch.save({"model": dict(zip("ab", alike)), "optimizer": opt.state_dict()}, self.at / "b.pt")
        with self.assertRaisesRegex(errors.StateMismatch, "2 parameters, there are 1 names"):
            migrate.import_torch(self.at / "b.pt", self.at / "run", step=5, optimizer_class="AdamW",
                                 names=["a", "a"])
        self.assertFalse((self.at / "run").exists())

    def test_tensors_that_lie_oddly_are_stored_by_their_values_and_shared_ones_once(self) -> None:
        self.skip_version_1()
        base = torch.arange(12.0).reshape(3, 4)
        made = {"whole": base, "again": base, "turned": base.t(), "part": base[1:, ::2], "cut": base[:1],
                "conjugate": torch.tensor([1 + 2j]).conj(), "negative": torch.tensor([1 + 2j]).conj().imag}
        torch.save(made, self.at / "b.pt")
        self.assertEqual(migrate.import_torch(self.at / "b.pt", self.at / "run", step=5), 6)
        with _native.Reader(self.at / "run") as reader:
            tensors = {t.name.removeprefix("model/"): t for t in reader.tensors(0)}
            self.assertEqual(sorted({*made} - {*tensors}), ["again"])
            for name, t in tensors.items():
                got = torch.full(t.shape, 7, dtype=made[name].dtype)
                reader.read(0, [t._replace(address=got.data_ptr())])
                self.assertTrue(torch.equal(got, made[name]), name)

    def test_names_that_the_optimizer_stored_itself_are_taken(self) -> None:
        model, _ = self.saved()
        opt = torch.optim.AdamW([*reversed([*model.parameters()])], lr=0.01)
        more(model, opt, 2)
        content = opt.state_dict()
        content["param_groups"][0]["param_names"] = [*reversed([n for n, _ in model.named_parameters()])]
        torch.save({"model": model.state_dict(), "optimizer": content}, self.at / "b.pt")
        migrate.import_torch(self.at / "b.pt", self.at / "run", step=2, optimizer_class="AdamW")
        other, _ = trained(0)
        second = torch.optim.AdamW([*reversed([*other.parameters()])], lr=0.01)
        with Checkpointer(self.at / "run", model=other, optimizer=second, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 2)
        for a, b in zip(model.parameters(), other.parameters()):
            self.assertTrue(torch.equal(opt.state[a]["exp_avg"], second.state[b]["exp_avg"]))

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

    def test_a_header_with_a_fault_is_refused_with_the_tensor_and_the_fault(self) -> None:
        one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        item = json.dumps(one)
        numbers = "a: shape and the two data_offsets have to be whole numbers from 0"
        cases: list[tuple[Any, str]] = [
            ([], "the header is no JSON object"), (b'{"a": 1', "the header is malformed"),
            (f'{{"a": {item}, "a": {item}}}'.encode(), "the header is malformed: a name stands there"),
            (b"[" * 100_000, "the header is malformed"),
            ({"a": 3}, "a: wanted dtype, shape and data_offsets"),
            ({"a": {**one, "more": 1}}, "a: wanted dtype, shape and data_offsets"),
            ({"a": {**one, "dtype": "F33"}}, "a: 'F33' is no element type"),
            ({"a": {**one, "dtype": ["F32"]}}, "a: .* is no element type"),
            ({"a": {**one, "shape": [-2]}}, numbers), ({"a": {**one, "shape": [2.0]}}, numbers),
            ({"a": {**one, "shape": [2**63, 0]}}, numbers), ({"a": {**one, "shape": "2"}}, numbers),
            ({"a": {**one, "shape": [2, True]}}, numbers), ({"a": {**one, "data_offsets": [0]}}, numbers),
            ({"a": {**one, "data_offsets": [0, 4]}}, "a: F32 \\(2,\\) needs 8 bytes, data_offsets give 4"),
            ({"a": one, "b": one}, "b begins at byte .*: a gap or an overlap"),
            ({"a": {**one, "shape": [1], "data_offsets": [4, 8]}}, "a begins at byte .*: a gap or"),
            ({"a": {**one, "shape": [1], "data_offsets": [0, 4]}}, "the tensors end at byte 73, the file at"),
        ]
        for header, wanted in cases:
            with self.subTest(str(header)[:80]), self.assertRaisesRegex(errors.Format, f"^here: {wanted}"):
                _safetensors.parse(safetensors(header), "here")
        self.assertEqual(list(_safetensors.parse(safetensors({"a": one, "__metadata__": {}}), "here")), ["a"])
        with mock.patch.object(_safetensors, "HEADER_BYTES_MAX", 8), \
                self.assertRaisesRegex(errors.Format, "with a header of [0-9]+ bytes: no safetensors file"):
            _safetensors.parse(safetensors({"a": one}), "here")

    def test_files_of_a_folder_are_those_of_its_index_and_no_others(self) -> None:
        one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        folder, index = self.at / "hf", self.at / "hf" / migrate.INDEX
        folder.mkdir()
        self.refused(errors.NotFound, "neither model.safetensors.index.json nor any", folder)
        for name in "ab":
            (folder / f"{name}.safetensors").write_bytes(safetensors({"x" + name: one}))
        for text, kind, wanted in (
            ("{", errors.Format, "wanted {\"weight_map\": {tensor: file}}"),
            ("[]", errors.Format, "wanted {\"weight_map\": {tensor: file}}"),
            ('{"weight_map": {"x": "../hf/a.safetensors"}}', errors.Format, "is no name of a file in the"),
            ('{"weight_map": {"x": 3}}', errors.Format, "3 is no name of a file in the same folder"),
            ('{"weight_map": {"x": "c.safetensors"}}', errors.NotFound, "c.safetensors: No such file"),
        ):
            index.write_text(text)
            self.refused(kind, wanted, folder)
        index.write_text('{"weight_map": {"xa": "a.safetensors"}}')
        self.assertEqual(migrate.import_safetensors(folder, self.at / "run0", step=1), 1)
        index.unlink()
        self.assertEqual(migrate.import_safetensors(folder, self.at / "run1", step=1), 2)
        (folder / "c.safetensors").write_bytes(safetensors({"xa": one}))
        self.refused(errors.Format, "c.safetensors: xa is in an earlier file too", folder)
        (folder / "c.safetensors").write_bytes(safetensors({}, b""))
        self.refused(errors.Format, "there is no tensor", folder / "c.safetensors")
        self.refused(errors.NotFound, "gone: No such file", self.at / "gone")

    def refused(self, kind: type[errors.Error], wanted: str, source: Path) -> None:
        with self.assertRaisesRegex(kind, wanted):
            migrate.import_safetensors(source, self.at / "run", step=1)
        self.assertFalse((self.at / "run").exists())

    def test_a_run_that_exists_and_a_step_that_is_none_are_refused(self) -> None:
        self.saved()
        with self.assertRaisesRegex(errors.Argument, "step 0: wanted"):
            migrate.import_torch(self.at / "a.pt", self.at / "run", step=0, optimizer_class="AdamW")
        self.assertFalse((self.at / "run").exists())
        migrate.import_torch(self.at / "a.pt", self.at / "run", step=5, optimizer_class="AdamW")
        with self.assertRaisesRegex(errors.Busy, "run: .*: an import makes a new run: give a folder with"):
            migrate.import_torch(self.at / "a.pt", self.at / "run", step=6, optimizer_class="AdamW")
        with self.assertRaisesRegex(errors.NotFound, "gone.pt: No such file"):
            migrate.import_torch(self.at / "gone.pt", self.at / "other", step=6)
        with _native.Reader(self.at / "run") as reader:
            self.assertEqual([step.step for step in reader.steps()], [5])

    def test_what_cannot_be_exported_is_told_and_a_full_disk_leaves_no_file(self) -> None:
        self.saved()
        run, out = self.at / "run", self.at / "hf"
        with self.assertRaisesRegex(errors.NotFound, "no whole step is stored"):
            _native.Ckpt(run).close()
            migrate.export(run, out)
        shutil.rmtree(run)
        migrate.import_torch(self.at / "a.pt", run, step=5, optimizer_class="AdamW")
        with self.assertRaisesRegex(errors.NotFound, "step 5: no tensor's name begins with net/"):
            migrate.export(run, out, key="net")
        with self.assertRaisesRegex(errors.Argument, "shard_bytes 0"):
            migrate.export(run, out, shard_bytes=0)
        self.assertFalse(out.exists())
        for number, kind in ((errno.ENOSPC, errors.NoSpace), (errno.EFBIG, errors.Io)):
            with mock.patch("os.posix_fallocate", side_effect=OSError(number, os.strerror(number))), \
                    self.assertRaisesRegex(kind, f"model.safetensors.part: {os.strerror(number)}"):
                migrate.export(run, out)
            self.assertEqual(list(out.iterdir()), [])
            out.rmdir()
        out.mkdir()
        with self.assertRaisesRegex(errors.Argument, "hf: File exists: give a new folder"):
            migrate.export(run, out)

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
