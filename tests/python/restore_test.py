"""Restoring: past damaged steps, into the memory that is there, and nothing where something does not fit."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import linecache
import os
import resource
import struct
import sys
import tempfile
import unittest
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import forked  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import pawl  # noqa: E402
from pawl import _native, _tree, errors  # noqa: E402

torch.set_num_threads(1)

WIDTH = 64
STATE_MIB = 512


class Run(unittest.TestCase):
    """Trainings whose tensors are full of the number of the step."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "run")
        self.model = nn.Linear(WIDTH, WIDTH)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.notes: dict[str, Any] = {}

    def fill(self, step: int) -> None:
        if not self.optimizer.state:
            self.model(torch.ones(1, WIDTH)).sum().backward()
            self.optimizer.step()
        with torch.no_grad():
            for p in self.model.parameters():
                p.fill_(step)
                self.optimizer.state[p]["exp_avg"].fill_(step)
                self.optimizer.state[p]["exp_avg_sq"].fill_(step)
        self.notes["history"] = torch.full((step,), float(step))  # of another shape in each step

    def open(self, **options: Any) -> pawl.Checkpointer:
        return pawl.Checkpointer(self.path, model=self.model, optimizer=self.optimizer, notes=self.notes,
                                 every=1000, **options)

    def save(self, *steps: int, keep: int = 3) -> None:
        with self.open(keep=keep) as ckpt:
            for step in steps:
                self.fill(step)
                ckpt.step(step)
                ckpt.save(wait=True)
        self.fill(7)

    @contextlib.contextmanager
    def resumed(self, **options: Any) -> Iterator[tuple[pawl.Checkpointer, int, list[str]]]:
        """With the warnings it gave."""
        with self.open() as ckpt, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            step = ckpt.resume(**options)
            self.assertTrue(all(issubclass(w.category, pawl.StepLost) for w in told), told)
            self.assertTrue(all(w.filename == __file__ for w in told), told)
            yield ckpt, step, [str(w.message) for w in told]

    def assert_is(self, step: int) -> None:
        for p in self.model.parameters():
            state = self.optimizer.state[p]
            for t in (p, state["exp_avg"], state["exp_avg_sq"]):
                self.assertEqual({float(step)}, set(t.detach().flatten().tolist()))
        self.assertEqual([float(step)] * step, self.notes["history"].tolist())

    def file_of(self, step: int) -> tuple[str, int]:
        """The file that holds the data of a step, and where in it a large tensor's bytes are."""
        store = os.path.join(self.path, "store", "rank-0000")
        wanted = struct.pack("<f", step) * WIDTH * WIDTH
        for name in os.listdir(store):
            with open(os.path.join(store, name), "rb") as f:
                at = f.read().find(wanted)
            if at >= 0:
                return os.path.join(store, name), at + WIDTH * WIDTH * 2
        raise AssertionError(f"no file holds step {step}")

    def log(self) -> str:
        return os.path.join(self.path, "store", "rank-0000", "commit-000001.log")

    def flip(self, step: int) -> None:
        self.flip_at(*self.file_of(step))

    def flip_at(self, path: str, at: int) -> None:
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 0x40]))


class Damage(Run):
    def test_a_flipped_bit_is_passed_over_for_the_next_older_step(self) -> None:
        self.save(10, 20, 30)
        self.flip(30)
        with self.resumed() as (ckpt, step, told):
            self.assertEqual(20, step)
            self.assert_is(20)
            self.assertEqual(1, len(told))
            self.assertRegex(told[0], "step 30 is damaged .* 20, 10 steps are computed again: .*checksum")
            failed = [e for e in ckpt.events() if e.kind == "failed"]
            self.assertEqual([(0, 30, "CORRUPT")], [(e.id, e.step, e.code) for e in failed])
            self.assertIn("10 steps are computed again", failed[0].text)
            self.assertEqual(20, ckpt.status()["durable_step"])
            self.fill(21)
            ckpt.step()
            self.assertTrue(ckpt.save(wait=True))
        with self.resumed() as (_, step, told):
            self.assertEqual((21, []), (step, told))
            self.assert_is(21)

    def test_the_warning_of_steps_points_at_the_loop(self) -> None:
        self.save(10, 20, 30)
        self.flip(30)
        with self.open() as ckpt, self.assertWarns(pawl.StepLost) as told:
            for _ in ckpt.steps(21):
                self.fill(21)
        self.assertEqual(__file__, told.filename)
        self.assertRegex(linecache.getline(told.filename, told.lineno), r"for _ in ckpt[.]steps")

    def test_each_damaged_step_is_named(self) -> None:
        self.save(10, 20, 30)
        self.flip(30)
        self.flip(20)
        with self.resumed() as (_, step, told):
            self.assertEqual(10, step)
            self.assert_is(10)
            self.assertEqual(["step 30 is damaged", "step 20 is damaged"],
                             [t.split(": ")[1][:18] for t in told])
        with self.resumed() as (_, step, told):  # both are marked
            self.assertEqual((10, []), (step, told))

    def test_a_file_cut_short_and_a_file_deleted_are_told(self) -> None:
        for spoil in (lambda path: os.truncate(path, os.path.getsize(path) // 2), os.unlink):
            with self.subTest(spoil):
                self.setUp()
                self.save(10, 20)
                spoil(self.file_of(20)[0])
                with self.resumed() as (ckpt, step, told):
                    self.assertEqual(10, step)
                    self.assert_is(10)
                    wanted = "step 20.* does not count.*, 10 steps are computed again"
                    self.assertRegex("".join(told), f"going on from step 10, .*{wanted}")
                    self.assertRegex("".join(e.text for e in ckpt.events() if e.kind == "failed"), wanted)

    def test_a_log_cut_short_is_told_although_opening_mends_it(self) -> None:
        self.save(10, 20, 30)  # the newest record is in the second region
        os.truncate(self.log(), 65536)
        with self.resumed() as (ckpt, step, told):
            self.assertEqual(20, step)
            wanted = ("65536 bytes long, wanted 131072; if it named steps later than 20, these are computed "
                      "again")
            self.assertRegex("".join(told), f"going on from step 20, .*{wanted}")
            self.assertEqual([0], [e.step for e in ckpt.events() if wanted in e.text])

    def test_damage_of_older_steps_is_an_event_and_no_lost_step(self) -> None:
        for at in (None, 200):  # the file of an older step, or the record before the newest
            with self.subTest(at=at):
                self.setUp()
                self.save(10, 20, 30)
                if at is None:
                    os.unlink(self.file_of(10)[0])
                else:
                    self.flip_at(self.log(), at)
                with self.resumed() as (ckpt, step, told):
                    self.assertEqual((30, []), (step, told))
                    texts = [e.text for e in ckpt.events() if e.kind == "failed"]
                    self.assertEqual(1, len(texts), texts)
                    self.assertNotIn("again", texts[0])

    def test_a_damaged_newest_record_is_told(self) -> None:
        self.save(10, 20, 30)
        self.flip_at(self.log(), 65536 + 200)
        with self.resumed() as (_, step, told):
            self.assertEqual(20, step)
            self.assertRegex("".join(told), "region 1: .* these are computed again")

    def test_a_step_that_cannot_be_read_now_is_not_marked(self) -> None:
        self.save(10, 20)
        read, fails = _native.Reader.read, [errors.Io("the device is away")]

        def once(reader: Any, index: int, tensors: Any) -> None:
            if fails and tensors:
                raise fails.pop()
            read(reader, index, tensors)

        with mock.patch.object(_native.Reader, "read", once), self.resumed() as (_, step, told):
            self.assertEqual(10, step)
            self.assertRegex("".join(told), "step 20 .*the device is away")
        with self.resumed() as (_, step, told):
            self.assertEqual((20, []), (step, told))
            self.assert_is(20)

    def test_strict_raises_and_the_next_resume_goes_back(self) -> None:
        self.save(10, 20)
        self.flip(20)
        with self.open() as ckpt, \
                self.assertRaisesRegex(errors.Corrupt, "step 20 is damaged.*partly overwritten"):
            ckpt.resume(strict=True)
        with self.resumed(strict=True) as (_, step, told):
            self.assertEqual((10, []), (step, told))
            self.assert_is(10)

    def test_without_a_good_step_it_raises_and_never_begins_anew_by_itself(self) -> None:
        self.save(10, keep=1)
        self.flip(10)
        for text in ("no older one is good.*from_scratch=True.*partly overwritten",
                     "from_scratch=True begins anew$"):
            with self.open() as ckpt, self.assertRaisesRegex(errors.Corrupt, text):
                ckpt.resume()
        with self.open(from_scratch=True) as ckpt:
            self.assertEqual(0, ckpt.resume())

    def test_the_only_step_deleted_is_a_loss_not_a_first_start(self) -> None:
        self.save(10, keep=1)
        os.unlink(self.file_of(10)[0])
        with self.open() as ckpt:
            with self.assertRaisesRegex(errors.Corrupt, "from_scratch=True begins anew$"):
                ckpt.resume()
            ckpt.step()
            with self.assertRaises(errors.Error):
                ckpt.save(wait=True)

    def test_an_older_step_that_does_not_fit_is_refused_though_objects_were_overwritten(self) -> None:
        self.notes["a"] = 1
        self.save(10)
        path = self.path
        with pawl.Checkpointer(path, model=self.model, optimizer=self.optimizer, every=1000) as other, \
                mock.patch.object(other, "_check"):
            other._ckpt.resume_from(10, 1)
            other._step = 19
            self.fill(20)
            other.step()
            other.save(wait=True)
        self.flip(20)
        with pawl.Checkpointer(path, model=self.model, optimizer=self.optimizer) as ckpt, \
                self.assertRaisesRegex(errors.StateMismatch, "(?s)notes: .*partly overwritten") as caught:
            ckpt.resume()
        self.assertNotIn("nothing was loaded", str(caught.exception))


class InPlace(Run):
    def test_parameters_are_read_where_they_are(self) -> None:
        self.save(10)
        before = [p.data_ptr() for p in self.model.parameters()]
        state = self.optimizer.state[self.model.weight]["exp_avg"]
        with mock.patch.object(torch.Tensor, "copy_", side_effect=AssertionError("copied")), self.resumed():
            pass
        self.assertEqual(before, [p.data_ptr() for p in self.model.parameters()])
        self.assert_is(10)
        self.assertEqual({7.0}, set(state.flatten().tolist()), "state that the program still holds changed")

    def test_a_malformed_blob_changes_nothing(self) -> None:
        def spoil(*args: Any, **kwargs: Any) -> bytes:
            blob = json.loads(_BLOB(*args, **kwargs))
            blob["objects"]["notes"]["value"] = {"a": {_tree.TAG: "tensor", "name": "lost"}}
            return json.dumps(blob).encode()

        with mock.patch.object(_tree, "blob", spoil):
            self.save(10)
        with self.open() as ckpt, self.assertRaisesRegex(errors.Format, "malformed, nothing was loaded"):
            ckpt.resume()
        self.assert_is(7)

    def test_generators_stored_as_numbers_are_read(self) -> None:
        import random
        state = random.getstate()

        def old(*args: Any, **kwargs: Any) -> bytes:
            blob = json.loads(_BLOB(*args, **kwargs))
            blob["rng"]["python"] = _tree.encode(state, "rng", None)
            return json.dumps(blob).encode()

        with mock.patch.object(_tree, "blob", old):
            self.save(10)
        wanted = random.random()
        with self.resumed():
            self.assertEqual(wanted, random.random())


_BLOB = _tree.blob


def model_of(mib: int) -> nn.Module:
    """Whose parameters, with the two moments of AdamW, are of this size."""
    side = 512
    count = (mib << 20) // (3 * 4 * side * side)
    return nn.ParameterList([nn.Parameter(torch.ones(side, side)) for _ in range(count)])


def saves_much(path: str, mib: int) -> None:
    model = model_of(mib)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    with pawl.Checkpointer(path, model=model, optimizer=optimizer, every=1) as ckpt:
        ckpt.step()


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resumes_much(path: str, mib: int) -> None:
    # What pawl and torch need themselves.
    with pawl.Checkpointer(path + "-warm", model=nn.Linear(2, 2)) as warm:
        warm.step()
        warm.save()
    before = peak_mib()
    model = model_of(mib)
    optimizer = torch.optim.AdamW(model.parameters())
    with pawl.Checkpointer(path, model=model, optimizer=optimizer) as ckpt:
        assert ckpt.resume() == 1
    last = list(model.parameters())[-1]
    assert optimizer.state[last]["exp_avg_sq"].count_nonzero() == last.numel()
    print((peak_mib() - before) / mib)


class Memory(unittest.TestCase):
    def test_resuming_needs_no_second_copy_of_the_state(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run")
            saved = forked.run(saves_much, path, STATE_MIB)
            self.assertEqual((0, ""), (saved.returncode, saved.stderr))
            had = forked.run(resumes_much, path, STATE_MIB)
            self.assertEqual((0, ""), (had.returncode, had.stderr))
            self.assertLess(float(had.stdout), 1.3)
            self.assertGreater(float(had.stdout), 0.9, "this measures nothing")


if __name__ == "__main__":
    forked.main()
