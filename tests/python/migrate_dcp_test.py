"""Folders that torch.distributed.checkpoint wrote, on one rank and on two, become runs equal bit for bit;
what is damaged, incomplete, or has code in it is refused by name, makes no run, and runs nothing."""

from __future__ import annotations

import collections
import contextlib
import errno
import importlib.util
import io
import os
import pickle
import re
import shutil
import sys
import tempfile
import unittest
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])
if VERSION < (2, 0) or not torch.distributed.is_available():
    print("skipped: this PyTorch has no torch.distributed.checkpoint as of version 2")
    sys.exit(77)

import torch.distributed as td  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.distributed.checkpoint import filesystem, metadata, state_dict  # noqa: E402

from pawl import _dcp, _migrate_dcp, _native, errors, migrate  # noqa: E402
from pawl.__main__ import main  # noqa: E402
from pawl.checkpointer import Checkpointer  # noqa: E402

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def build(seed: int = 3) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any, steps: int) -> None:
    for i in range(steps):
        optimizer.zero_grad()
        x = torch.arange(20, dtype=torch.float32).reshape(4, 5) / (7 + i)
        model(x).square().mean().backward()
        optimizer.step()


def whole(value: Any) -> torch.Tensor:
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).detach()


def flat(model: Any, optimizer: Any) -> dict[str, torch.Tensor]:
    out = {f"model/{n}": whole(v).clone() for n, v in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            out[f"optimizer/{name}/{key}"] = whole(value).clone()
    return out


def sharded_rank(rank: int, folder: str) -> None:
    """Two ranks of FSDP2 write at/dcp; rank 0 what it was, as a whole, into at/want.pt."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.set_num_threads(1)
    td.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    model, _ = build()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, 4)
    names = state_dict.get_state_dict(model, optimizer)
    dcp.save({"app": {"model": names[0], "optim": names[1]}}, checkpoint_id=f"{folder}/dcp")
    want = flat(model, optimizer)
    if rank == 0:
        torch.save(want, f"{folder}/want.pt")
    td.destroy_process_group()


def placed_rank(rank: int, folder: str) -> None:
    """Two ranks write DTensors cut in several ways into folder/dcp."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    torch.set_num_threads(1)
    td.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    cuts = {"rows": Shard(0), "columns": Shard(1), "few": Shard(0), "same": Replicate()}
    made = {name: distribute_tensor(value, mesh, [cuts[name]]) for name, value in placed().items()}
    dcp.save({"model": made}, checkpoint_id=f"{folder}/dcp")
    td.destroy_process_group()


def placed() -> dict[str, torch.Tensor]:
    """An uneven cut, a cut of columns, a rank that holds nothing, copies."""
    return {"rows": torch.arange(35.0).reshape(5, 7), "columns": torch.arange(24.0).reshape(4, 6).bfloat16(),
            "few": torch.arange(3.0).reshape(1, 3), "same": torch.arange(4)}


class MigrateDcpTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = Path(folder.name)

    def run_of(self, content: dict[str, Any], **options: Any) -> int:
        dcp.save(content, checkpoint_id=str(self.at / "dcp"))
        return migrate.import_dcp(self.at / "dcp", self.at / "run", step=4, **options)

    def same(self, got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
        self.assertEqual(set(got), set(wanted))
        for name, tensor in wanted.items():
            self.assertEqual(got[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(got[name], tensor), name)

    def resumed(self, **more: Any) -> tuple[Any, Any]:
        model, optimizer = build(9)
        with Checkpointer(self.at / "run", model=model, optimizer=optimizer, signals=(), **more) as ckpt:
            self.assertEqual(ckpt.resume(), 4)
        return model, optimizer

    def refused(self, kind: type[errors.Error], pattern: str, **options: Any) -> None:
        with self.assertRaisesRegex(kind, pattern):
            migrate.import_dcp(self.at / "dcp", self.at / "run", step=4, **options)
        self.assertFalse((self.at / "run").exists())

    def test_training_goes_on_from_a_folder_of_one_process(self) -> None:
        model, optimizer = build()
        train(model, optimizer, 4)
        names = state_dict.get_state_dict(model, optimizer)
        self.run_of({"model": names[0], "optimizer": names[1]}, optimizer_class="AdamW")
        other, second = self.resumed()
        self.same(flat(other, second), flat(model, optimizer))
        train(model, optimizer, 3)
        train(other, second, 3)
        self.same(flat(other, second), flat(model, optimizer))

    def test_numbered_and_flattened_optimizers_get_the_parameters_names(self) -> None:
        model, optimizer = build()
        train(model, optimizer, 4)
        names = [n for n, _ in model.named_parameters()]
        flattened = state_dict.get_optimizer_state_dict(
            model, optimizer, options=state_dict.StateDictOptions(flatten_optimizer_state_dict=True))
        for i, (stored, given) in enumerate([(optimizer.state_dict(), names), (flattened, None)]):
            at = self.at / str(i)
            dcp.save({"model": model.state_dict(), "optimizer": stored}, checkpoint_id=str(at))
            migrate.import_dcp(at, self.at / f"run{i}", step=4, optimizer_class="AdamW", names=given)
            other, second = build(9)
            with Checkpointer(self.at / f"run{i}", model=other, optimizer=second, signals=()) as ckpt:
                self.assertEqual(ckpt.resume(), 4)
            self.same(flat(other, second), flat(model, optimizer))
            self.assertEqual(second.param_groups[0]["betas"], optimizer.param_groups[0]["betas"])

    def test_groups_of_a_flattened_optimizer_are_told_by_their_options(self) -> None:
        def grouped(seed: int, *rates: float) -> tuple[Any, Any]:
            model, _ = build(seed)
            parts = [*model.parameters()][:2], [*model.parameters()][2:]
            return model, torch.optim.AdamW([dict(params=p, lr=r) for p, r in zip(parts, rates)])

        model, optimizer = grouped(3, 0.01, 0.02)
        train(model, optimizer, 2)
        flattened = state_dict.get_optimizer_state_dict(
            model, optimizer, options=state_dict.StateDictOptions(flatten_optimizer_state_dict=True))
        self.run_of({"model": model.state_dict(), "optimizer": flattened}, optimizer_class="AdamW")
        other, second = grouped(9, 0.5, 0.6)
        with Checkpointer(self.at / "run", model=other, optimizer=second, signals=()) as ckpt:
            self.assertEqual(ckpt.resume(), 4)
        self.assertEqual([group["lr"] for group in second.param_groups], [0.01, 0.02])
        self.same(flat(other, second), flat(model, optimizer))

    def test_other_names_of_the_entries_are_found_or_given_and_the_rest_is_kept(self) -> None:
        for n, (names, options) in enumerate((
            (("model_state_dict", "optimizer_state_dict"), {}),
            (("net", "adam"), {"model_key": "net", "optimizer_key": "adam"}),
        )):
            model, optimizer = build()
            train(model, optimizer, 2)
            content = {names[0]: model.state_dict(), names[1]: optimizer.state_dict(), "epoch": 3}
            self.at = self.at / str(n)
            parameters = [name for name, _ in model.named_parameters()]
            self.run_of(content, optimizer_class="AdamW", names=parameters, **options)
            values: dict[str, Any] = {}
            other, second = self.resumed(values=values)
            self.same(flat(other, second), flat(model, optimizer))
            self.assertEqual(values, {"epoch": 3})

    def test_a_folder_whose_save_did_not_finish_is_told_as_one(self) -> None:
        self.run_of({"model": build()[0].state_dict()})
        shutil.rmtree(self.at / "run")
        (self.at / "dcp" / ".metadata").unlink()
        self.refused(errors.NotFound, "save did not finish.*[.]distcp.*[.]metadata, which is written last")
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            code = main(["import", str(self.at / "dcp"), str(self.at / "run"), "--step", "4"])
        self.assertEqual(code, errors.NotFound.exit_code)
        self.assertIn("save did not finish", told.getvalue())

    def test_boxes_of_two_ranks_are_put_together_whatever_the_cut(self) -> None:
        mp.start_processes(placed_rank, (str(self.at),), 2, start_method="fork")
        found = _dcp.read(self.at / "dcp").tensors
        self.assertEqual([c.begin for c in found["model.columns"].chunks if c.place], [(0, 0), (0, 3)])
        self.assertEqual(migrate.import_dcp(self.at / "dcp", self.at / "run", step=4), 4)
        theirs = {"model": {n: torch.empty_like(v) for n, v in placed().items()}}
        dcp.load(theirs, checkpoint_id=str(self.at / "dcp"))
        with _native.Reader(self.at / "run") as reader:
            for t in reader.tensors(0):
                name = t.name.removeprefix("model/")
                got = torch.empty_like(placed()[name])
                reader.read(0, [t._replace(address=got.data_ptr())])
                self.assertTrue(torch.equal(got, placed()[name]), name)
                self.assertTrue(torch.equal(got, theirs["model"][name]), name)

    @unittest.skipIf(VERSION < (2, 7), "FSDP2 of this PyTorch does not run on the processor")
    def test_shards_of_two_ranks_are_put_together_as_pytorch_itself_loads_them(self) -> None:
        mp.start_processes(sharded_rank, (str(self.at),), 2, start_method="fork")
        self.assertEqual(len(list((self.at / "dcp").glob("*.distcp"))), 2)
        chunks = _dcp.read(self.at / "dcp").tensors["app.model.0.weight"].chunks
        self.assertEqual([c.begin for c in chunks], [(0, 0), (4, 0)])
        words = ["import", str(self.at / "dcp"), str(self.at / "run"), "--step", "4", "--optimizer", "AdamW"]
        self.assertEqual(main(words), 0)
        other, second = self.resumed()
        want = torch.load(self.at / "want.pt", weights_only=True)
        self.same(flat(other, second), want)
        theirs = {"app": {"model": {n: torch.empty_like(v) for n, v in other.state_dict().items()}}}
        dcp.load(theirs, checkpoint_id=str(self.at / "dcp"))
        self.same({f"model/{n}": v for n, v in theirs["app"]["model"].items()},
                  {n: v for n, v in want.items() if n.startswith("model/")})

    def test_tied_tensors_and_buffers_come_through(self) -> None:
        class Tied(torch.nn.Module):
            def __init__(self, seed: int) -> None:
                super().__init__()
                torch.manual_seed(seed)
                self.first, self.second = torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6, bias=False)
                self.second.weight = self.first.weight
                self.register_buffer("seen", torch.tensor(seed))
                self.register_buffer("forgotten", torch.tensor(seed), persistent=False)

        model, other = Tied(3), Tied(5)
        torch.save(model.state_dict(), self.at / "a.pt")
        dcp.save(model.state_dict(), checkpoint_id=str(self.at / "dcp"))
        migrate.import_torch(self.at / "a.pt", self.at / "run0", step=4)
        migrate.import_dcp(self.at / "dcp", self.at / "run1", step=4)
        migrate.export(self.at / "run0", self.at / "hf")  # has a tied tensor once
        migrate.import_safetensors(self.at / "hf", self.at / "run2", step=4)
        for i in range(3):
            other = Tied(5)
            with Checkpointer(self.at / f"run{i}", model=other, signals=()) as ckpt:
                self.assertEqual(ckpt.resume(), 4)
            self.assertIs(other.first.weight, other.second.weight)
            self.same(other.state_dict(), model.state_dict())
            self.assertTrue(torch.equal(other.get_buffer("forgotten"), torch.tensor(5)))
        changed = {**model.state_dict(), "second.weight": model.first.weight.detach() + 1}
        dcp.save(changed, checkpoint_id=str(self.at / "apart"))
        migrate.import_dcp(self.at / "apart", self.at / "run3", step=4)
        other = Tied(5)
        with Checkpointer(self.at / "run3", model=other, signals=()) as ckpt:
            with self.assertRaisesRegex(errors.StateMismatch, "second.weight: stored apart from "
                                                              "model/first.wei"):
                ckpt.resume()
        self.same(other.state_dict(), Tied(5).state_dict())

    def test_every_type_and_odd_shapes_keep_their_bits(self) -> None:
        from pawl import _torch
        made: dict[str, torch.Tensor] = {"empty": torch.empty(0, 3), "scalar": torch.tensor(2.5)}
        for dtype in _torch.DTYPES:
            size = torch.empty((), dtype=dtype).element_size()
            bits = torch.arange(12 * size, dtype=torch.uint8) % 2
            made[str(dtype)] = bits.view(dtype).reshape(3, 4)
        made["turned"] = torch.arange(12.0).reshape(3, 4).t()
        self.run_of({"model": made})
        with _native.Reader(self.at / "run") as reader:
            for t in reader.tensors(0):
                got = torch.full(t.shape, 7, dtype=torch.int32).to(_torch.TORCH_OF[t.dtype])
                reader.read(0, [t._replace(address=got.data_ptr())])
                want = made[t.name.removeprefix("model/")].contiguous()
                self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), t.name)
                a, b = (v.flatten().view(torch.uint8) for v in (got, want))
                self.assertTrue(torch.equal(a, b), t.name)

    def test_other_values_are_kept_and_given_back(self) -> None:
        model, _ = build()
        sampler = {"epoch": 3, "seen": [1, 2], "order": {"at": torch.arange(4)}, "pair": (1, "a")}
        self.run_of({"model": model.state_dict(), "sampler": sampler, "step": 7, "lr": 0.1})
        given: dict[str, Any] = {}
        values: dict[str, Any] = {}
        other = build(9)[0]
        with Checkpointer(self.at / "run", model=other, sampler=given, values=values, signals=()) as ckpt:
            ckpt.resume()
        self.assertEqual(values, {"step": 7, "lr": 0.1})
        self.assertTrue(torch.equal(given["order"].pop("at"), torch.arange(4)))
        self.assertEqual(given, {"epoch": 3, "seen": [1, 2], "order": {}, "pair": (1, "a")})
        two = {"model": model.state_dict(), "values": {"a": 1}, "step": 7}
        dcp.save(two, checkpoint_id=str(self.at / "two"))
        with self.assertRaisesRegex(errors.Format, "values is stored, and step would have to go there"):
            migrate.import_dcp(self.at / "two", self.at / "other", step=4)

    def test_what_cannot_be_kept_is_named_and_can_be_skipped(self) -> None:
        content = {"model": build()[0].state_dict(),
                   "app": {"odd": collections.Counter, "date": marker_type()}}
        dcp.save(content, checkpoint_id=str(self.at / "dcp"))
        self.refused(errors.Unsupported, r"app\.odd: .*builtins.type cannot be saved.*skip it by its name")
        self.refused(errors.Format, r"app\.date: .*GLOBAL.*Marker.*skip it by its name", skip=["app.odd"])
        self.refused(errors.Argument, "nothing to skip is named ap$", skip=["app", "ap"])
        words = ["import", str(self.at / "dcp"), str(self.at / "run"), "--step", "4", "--skip", "app"]
        self.assertEqual(main(words), 0)
        self.assertFalse(Marker.made)

    # ---- Refused ----

    def small(self) -> Path:
        content = {"model": {"a": torch.arange(40.0), "b": torch.ones(2, 3)}, "note": "text"}
        dcp.save(content, checkpoint_id=str(self.at / "dcp"))
        return self.at / "dcp"

    def test_a_pickle_with_code_in_it_is_refused_by_name_and_not_run(self) -> None:
        at, marker = self.small() / ".metadata", self.at / "ran"
        calls: list[tuple[Any, tuple[Any, ...]]] = [
            (os.system, (f"touch {marker}",)), (os.mkdir, (str(marker),)), (eval, ("1",)),
            (getattr, (1, "real")), (importlib.import_module, ("antigravity",)), (torch.load, ("x",)),
            (io.open, (str(marker), "w")),
            (torch.serialization.load, ("x",)), (filesystem.FileSystem, ())]
        for call, arguments in calls:
            class Bad:
                def __reduce__(self, call: Any = call, arguments: Any = arguments) -> Any:
                    return call, arguments
            for protocol in (0, 2, 4):
                at.write_bytes(pickle.dumps({"x": Bad()}, protocol=protocol))
                self.refused(errors.Format, f"needs [a-z_.]*{re.escape(call.__name__)}, which is no part")
        for text in (b"cpawl._dcp\n_Unpickler\n.", b"ctorch\n_C\n.", b"cbuiltins\ntype\n.", b"\x82\x01.",
                     b"P1\n.", b"ctorch\nSize\n}X\x01\x00\x00\x00aK\x01sb.", b"}" * 9 + b".", b""):
            at.write_bytes(text)
            self.refused(errors.Format, r"\.metadata")
        self.assertFalse(marker.exists())
        self.assertNotIn("antigravity", sys.modules)

    def test_what_a_pickle_sets_on_the_records_does_not_outlive_it(self) -> None:
        record = b"ctorch.distributed.checkpoint.metadata\nMetadata\n"
        at = self.small() / ".metadata"
        good = at.read_bytes()
        at.write_bytes(record + b"(N}X\x0c\x00\x00\x00__setstate__cbuiltins\nset\nst" + b"b.")
        self.refused(errors.Format, "malformed")
        at.write_bytes(good)
        self.assertEqual(migrate.import_dcp(self.at / "dcp", self.at / "run", step=1), 2)

    def test_every_cut_of_the_metadata_is_refused(self) -> None:
        at = self.small() / ".metadata"
        data = at.read_bytes()
        for length in range(len(data)):
            at.write_bytes(data[:length])
            with self.assertRaises(errors.Format):
                _dcp.read(self.at / "dcp")

    def test_bytes_of_the_metadata_that_changed_are_an_error_of_ours_or_harmless(self) -> None:
        at = self.small() / ".metadata"
        data = at.read_bytes()
        for i in range(len(data)):
            for value in (data[i] ^ 1, data[i] ^ 0x80):
                at.write_bytes(data[:i] + bytes([value]) + data[i + 1:])
                try:
                    _dcp.read(self.at / "dcp")
                except errors.Error as e:
                    self.assertIn(str(at.parent), str(e))

    def test_a_shard_file_cut_at_each_kind_of_byte_is_refused(self) -> None:
        self.small()
        file = self.at / "dcp" / "__0_0.distcp"
        data = file.read_bytes()
        info = _dcp.read(self.at / "dcp").tensors["model.a"].chunks[0].place
        assert info is not None
        ends = zipfile.ZipFile(io.BytesIO(data[info.offset:info.offset + info.length]))
        cuts = {0, info.offset, info.offset + 3, info.offset + ends.start_dir,
                info.offset + ends.start_dir + 5, info.offset + info.length - 1, len(data) - 1}
        cuts |= {info.offset + r.header_offset + d for r in ends.infolist() for d in (0, 10, 60, 90)}
        for cut in sorted(cuts):
            file.write_bytes(data[:cut])
            self.refused(errors.Format, "which has [0-9]+: it was cut")
        file.unlink()
        self.refused(errors.NotFound, "__0_0.distcp")

    def test_a_changed_byte_of_an_item_is_refused(self) -> None:
        self.small()
        file = self.at / "dcp" / "__0_0.distcp"
        data = bytearray(file.read_bytes())
        found = data.index(torch.arange(40.0).numpy().tobytes()[4:])
        data[found + 20] ^= 1
        file.write_bytes(data)
        self.refused(errors.Corrupt, "model.a: .*data/0 does not match its checksum")
        text = data.index(b"X\x04\x00\x00\x00text")
        data[found + 20] ^= 1
        data[text + 6] ^= 1
        file.write_bytes(data)
        self.refused(errors.Corrupt, "note: .*data.pkl does not match its checksum")

    def test_items_without_checksums_are_read(self) -> None:
        torch.serialization.set_crc32_options(False)
        self.addCleanup(torch.serialization.set_crc32_options, True)
        self.small()
        self.assertEqual(migrate.import_dcp(self.at / "dcp", self.at / "run", step=1), 2)

    def test_an_item_that_is_no_plain_zip_of_torch_save_is_refused(self) -> None:
        old, packed, script = io.BytesIO(), io.BytesIO(), io.BytesIO()
        torch.save({"x": 1}, old, _use_new_zipfile_serialization=False)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(1, 2))
        torch.jit.save(torch.jit.script(torch.nn.Identity()), script)
        inner = io.BytesIO()
        torch.save(1, inner)
        for data, pattern in ((old.getvalue(), "nothing that torch.save wrote in the zip layout"),
                              (packed.getvalue(), "data.pkl is nothing that"),
                              (script.getvalue(), "is nothing that torch.save writes"),
                              (old.getvalue() + inner.getvalue(), "what stands before the zip archive is")):
            (self.at / "item").write_bytes(data)
            place = _dcp.Place(self.at / "item", 0, len(data))
            with self.assertRaisesRegex(errors.Format, pattern):
                _migrate_dcp._load(place, "here")
            with self.assertRaisesRegex(errors.Format, pattern):
                migrate.import_torch(self.at / "item", self.at / "run", step=1)

    def changed(self, change: Any) -> None:
        """The metadata of small(), with `change` applied to PyTorch's own object of it."""
        if not (self.at / "dcp").exists():
            self.small()
            (self.at / "good").write_bytes((self.at / "dcp" / ".metadata").read_bytes())
        found = pickle.loads((self.at / "good").read_bytes())
        change(found)
        (self.at / "dcp" / ".metadata").write_bytes(pickle.dumps(found))

    def test_boxes_that_overlap_leave_gaps_or_leave_the_tensor_are_refused(self) -> None:
        def chunks(*boxes: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
            def change(m: Any) -> None:
                m.state_dict_metadata["model.b"].chunks = [
                    metadata.ChunkStorageMetadata(torch.Size(b), torch.Size(e)) for b, e in boxes]
                place = m.storage_data[metadata.MetadataIndex("model.b", torch.Size((0, 0)))]
                for begin, _ in boxes:
                    m.storage_data[metadata.MetadataIndex("model.b", torch.Size(begin))] = place
            return change

        for boxes, pattern in (
                ([((0, 0), (2, 2)), ((0, 1), (2, 2))],
                 r"box at \(0, 1\) of \(2, 2\) lies over that at \(0, 0\)"),
                ([((0, 0), (2, 3)), ((1, 2), (1, 1))], "lies over"),
                ([((0, 0), (2, 2)), ((0, 2), (1, 1)), ((1, 1), (1, 1))], r"lies over that at \(0, 0\)"),
                ([((0, 0), (2, 2))], "hold 4 elements, .* has 6: some are missing"),
                ([((0, 0), (1, 3)), ((1, 0), (1, 2))], "some are missing"),
                ([], "some are missing"),
                ([((0, 1), (2, 3))], r"box at \(0, 1\) of \(2, 3\) leaves"),
                ([((0,), (2,))], "has 1 dimensions, wanted 2"),
                ([((0, 0), (1, 3)), ((1, 0), (1, 3))],
                 r"model.b: the box at .* wanted torch.float32 \(1, 3\), had")):
            self.changed(chunks(*boxes))
            self.refused(errors.Format, pattern)

    def test_places_outside_of_the_folder_or_of_the_file_are_refused(self) -> None:
        (self.at / "outside").write_bytes(b"x" * 9999)
        self.small()
        (self.at / "dcp" / "link").symlink_to(self.at / "outside")
        (self.at / "good").write_bytes((self.at / "dcp" / ".metadata").read_bytes())

        def place(*values: Any, **more: Any) -> Any:
            def change(m: Any) -> None:
                info = filesystem._StorageInfo(*values)
                vars(info).update(more)  # fields that this PyTorch may not know
                m.storage_data[metadata.MetadataIndex("note")] = info
            return change

        for values, kind, pattern in (
                (("../outside", 0, 9), errors.Format, "nothing outside of it is read"),
                ((str(self.at / "outside"), 0, 9), errors.Format, "nothing outside of it is read"),
                (("link", 0, 9), errors.Format, "nothing outside of it is read"),
                ((".", 0, 9), errors.Format, "is no file in"),
                (("gone", 0, 9), errors.NotFound, "its file 'gone' in .* cannot be read"),
                (("a\0b", 0, 9), errors.NotFound, "cannot be read"),
                (("__0_0.distcp", -1, 9), errors.Format, "from 0"),
                (("__0_0.distcp", 0, 2**40), errors.Format, "it was cut"),
                ((7, 0, 1), errors.Format, "wanted a file's name")):
            self.changed(place(*values))
            self.refused(kind, "note: .*" + pattern)
        self.changed(place("__0_0.distcp", 0, 9, transform_descriptors=["zstd"]))
        self.refused(errors.Unsupported, "note: .*extensions .*zstd")
        self.changed(lambda m: m.storage_data.pop(metadata.MetadataIndex("note")))
        self.refused(errors.Format, "note: no place is given")

    def test_odd_contents_of_the_metadata_are_refused(self) -> None:
        def tensor(m: Any) -> Any:
            return m.state_dict_metadata["model.b"]

        cases: list[tuple[Callable[[Any], Any], str]] = [
                (lambda m: setattr(tensor(m), "size", (2, -3)), "wanted a size"),
                (lambda m: setattr(tensor(m), "size", (2**40, 2**40)), "larger than any memory"),
                (lambda m: setattr(tensor(m), "properties", "x"), "wanted an element type"),
                (lambda m: setattr(tensor(m).properties, "dtype", torch.complex128), "torch.complex128"),
                (lambda m: setattr(m, "storage_data", [1]), "storage_data: wanted a dict"),
                (lambda m: m.planner_data.update(note=("model", "a")), "stands there twice"),
                (lambda m: m.planner_data.update(note=("model", "a", "x")), "model.a: stands there twice"),
                (lambda m: m.planner_data.update(note=("model",)), "what it is nested in is a value too"),
                (lambda m: m.planner_data.update(note=("notes", 3)), "of a list only the places"),
                (lambda m: m.planner_data.update(note=("x",) * 2000), "wanted 1 to 100"),
                (lambda m: m.state_dict_metadata.update(note=3), "wanted a TensorStorageMetadata")]
        for change, pattern in cases:
            self.changed(change)
            self.refused(errors.Format, pattern)
        raw = b")" + b"\x85" * 100_000 + b"."
        (self.at / "dcp" / ".metadata").write_bytes(raw)
        self.refused(errors.Format, "wanted a Metadata")

    def test_memory_holds_one_box_at_a_time(self) -> None:
        kept: list[Any] = []
        load = _migrate_dcp._load

        def watched(place: Any, what: str) -> Any:
            import weakref
            out = load(place, what)
            if isinstance(out, torch.Tensor):
                self.assertEqual(sum(r() is not None for r in kept[:-1]), 0)
                kept.append(weakref.ref(out))
            return out

        _migrate_dcp._load = watched
        self.addCleanup(setattr, _migrate_dcp, "_load", load)
        self.run_of({"model": {str(i): torch.ones(9) for i in range(5)}})
        self.assertEqual(len(kept), 5)

    def test_no_room_for_the_scratch_file_is_an_error(self) -> None:
        self.small()
        for number, kind in ((errno.ENOSPC, errors.NoSpace), (errno.EDQUOT, errors.NoSpace),
                             (errno.EFBIG, errors.Io)):
            full = OSError(number, os.strerror(number))
            with mock.patch("os.posix_fallocate", side_effect=full), \
                    self.assertRaisesRegex(kind, f"{self.at}: no room for 256 bytes .*{full.strerror}") as no:
                migrate.import_dcp(self.at / "dcp", self.at / "no" / "run", step=1)
            self.assertEqual(no.exception.os_errno, number)
            self.assertFalse((self.at / "no").exists())


class Marker:
    made = False

    def __init__(self) -> None:
        Marker.made = True


def marker_type() -> Any:
    """An object that pickle stores by a call of Marker."""
    class Stored:
        def __reduce__(self) -> Any:
            return Marker, ()
    return Stored()


if __name__ == "__main__":
    unittest.main()
