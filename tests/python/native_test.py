"""The binding against the headers and the library: layouts, errors, save, resume, units, readers, imports."""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from pawl import _abi, _options, _train_abi, errors
from pawl._native import Ckpt, Reader, Tensor

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = re.compile(r"^X\((\w+), (\w+)(?:, (\d+))?", re.MULTILINE)


def floats(*values: float) -> array.array[float]:
    return array.array("f", values)


def tensor(name: str, data: array.array[float], shape: tuple[int, ...], **other: Any) -> Tensor:
    return Tensor(name, "F32", shape, None, None, data.buffer_info()[0])._replace(**other)


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name + "/run"

    def save(self, step: int, *values: float, blob: bytes = b"", **options: Any) -> None:
        data = floats(*values)
        with Ckpt(self.path, **options) as ckpt:
            handle = ckpt.declare([tensor("a", data, (len(values),))])
            ckpt.resume(handle)
            ckpt.wait(ckpt.save(handle, step, blob=blob), "durable", 20)


class Layout(unittest.TestCase):
    def test_every_structure_lies_in_memory_as_the_headers_say(self) -> None:
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.skipTest("no C compiler")
        lines, wanted = [], []
        for name, struct in {**_abi.STRUCTS, **_train_abi.STRUCTS}.items():
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            wanted.append(f"{name} {ctypes.sizeof(struct)}")
            for field, *_ in struct._fields_:
                at = getattr(struct, field)
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}), '
                             f'sizeof(((struct {name} *)0)->{field}));')
                wanted.append(f"{name}.{field} {at.offset} {at.size}")
        source = ("#include <stdio.h>\n#include <pawl/ckpt.h>\n#include <pawl/engine.h>\n"
                  f"int main(void) {{ {' '.join(lines)} return 0; }}\n")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.c").write_text(source, encoding="utf-8")
            subprocess.run([compiler, f"-I{ROOT}/include", f"{folder}/a.c", "-o", f"{folder}/a"], check=True)
            told = subprocess.run([f"{folder}/a"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(told.splitlines(), wanted)

    def test_what_options_may_be_at_most_is_what_the_library_takes(self) -> None:
        text = (ROOT / "include/pawl/ckpt.h").read_text(encoding="utf-8")
        for field, most in (("in_flight", _options.IN_FLIGHT_MAX), ("keep", _options.KEEP_MAX)):
            self.assertRegex(text, rf"uint32_t {field}; +/\* .*\b1 to {most};")
        self.assertRegex(text, rf"uint64_t chunk_bytes; /\* multiple of {_options.STAGING_MIN};")
        allowed: dict[str, Any] = {"in_flight": _options.IN_FLIGHT_MAX, "keep": _options.KEEP_MAX,
                                   "tolerate": _options.TOLERATE_MAX, "staging_bytes": _options.STAGING_MIN}
        with tempfile.TemporaryDirectory() as folder:
            Ckpt(folder, **allowed).close()
            for name, value in allowed.items():
                with self.assertRaisesRegex(errors.Argument, name):
                    Ckpt(folder, **{name: value + (-1 if name == "staging_bytes" else 1)})

    def test_the_types_are_those_of_dtype_def_in_its_order(self) -> None:
        text = (ROOT / "include/pawl/dtype.def").read_text(encoding="utf-8")
        self.assertEqual(list(_abi.dtype_names()), [name for name, *_ in DEFINITION.findall(text)])


class Errors(Folder):
    def test_there_is_one_class_for_each_code_of_error_def(self) -> None:
        text = (ROOT / "include/pawl/error.def").read_text(encoding="utf-8")
        wanted = {name: (after, int(code)) for name, after, code in DEFINITION.findall(text) if name != "OK"}
        had = {kind.code: (kind.next, kind.exit_code) for kind in errors.Error.__subclasses__()}
        self.assertEqual(had, wanted)
        self.assertEqual(list(_train_abi.CODES), [name for name, *_ in DEFINITION.findall(text)])
        for kind in errors.Error.__subclasses__():
            self.assertEqual(kind.__name__, "".join(part.capitalize() for part in kind.code.split("_")))

    def test_an_error_survives_pickling(self) -> None:
        again = pickle.loads(pickle.dumps(errors.NoSpace("full", 28)))
        self.assertEqual((type(again), str(again), again.os_errno), (errors.NoSpace, "full", 28))

    def test_a_second_writer_is_busy_and_a_missing_run_is_not_found(self) -> None:
        with self.assertRaises(errors.NotFound):
            Ckpt(self.path, must_exist=True)
        with Ckpt(self.path), self.assertRaises(errors.Busy) as raised:
            Ckpt(self.path)
        self.assertEqual((raised.exception.code, raised.exception.next), ("BUSY", "RETRY"))

    def test_functions_are_said_by_the_names_that_they_have_here(self) -> None:
        for text, said in (
                ("call pawl_ckpt_from_scratch to begin", "give from_scratch=True to begin"),
                ("call pawl_ckpt_resume, or pawl_ckpt_from_scratch", "call resume(), or from_scratch=True"),
                ("pawl_ckpt_resume_from takes", "resume_from() takes"),
                ("pawl_ckpt_nothing is", "pawl_ckpt_nothing is"),
                ("runs/pawl_ckpt_resume: busy", "runs/pawl_ckpt_resume: busy"),
                ("pawl_ckpt_resume/store: busy", "pawl_ckpt_resume/store: busy")):
            self.assertEqual(said, _abi.said(text))

    def test_no_message_of_the_library_names_a_function_of_c(self) -> None:
        strings = re.compile(r'"(?:[^"\\\n]|\\.)*"')
        files = [f for part in ("saver", "ckpt", "store", "tune") for f in (ROOT / "src" / part).glob("*.c")]
        found = [text for f in files for text in strings.findall(f.read_text())
                 if re.search(r"\bpawl_ckpt_\w", text)]
        self.assertGreater(len(found), 0)
        for text in found:
            self.assertNotIn("pawl_ckpt_", _abi.said(text[1:-1]))

    def test_a_foreign_run_is_refused(self) -> None:
        self.save(1, 1.0, run_id="11" * 16)
        with self.assertRaises(errors.Foreign):
            Ckpt(self.path, run_id="22" * 16)

    def test_other_shapes_and_missing_tensors_are_named(self) -> None:
        self.save(1, 1.0, 2.0)
        data = floats(0, 0, 0)
        for other, kind in ((tensor("a", data, (3,)), errors.Format),
                            (tensor("b", data, (2,)), errors.NotFound)):
            with self.subTest(other.name), Ckpt(self.path) as ckpt:
                with self.assertRaisesRegex(kind, other.name):
                    ckpt.resume(ckpt.declare([other]))

    def test_a_number_that_does_not_fit_is_refused_and_not_cut(self) -> None:
        for name, value in (("rank", -1), ("keep", 1 << 32), ("every", -1), ("staging_bytes", 1 << 64)):
            wrong: dict[str, Any] = {name: value}
            with self.subTest(name), self.assertRaisesRegex(errors.Argument, name):
                Ckpt(self.path, **wrong)
        with Ckpt(self.path) as ckpt:
            handle = ckpt.declare([tensor("a", floats(1), (1,))])
            with self.assertRaisesRegex(errors.Argument, "step"):
                ckpt.save(handle, 1 << 64)
            with self.assertRaisesRegex(errors.Argument, "-2"):
                ckpt.declare([tensor("a", floats(1), (-2,))])

    def test_text_that_names_no_choice_is_told_the_choices(self) -> None:
        for name, text in (("full", "wait"), ("backend", "fast"), ("run_id", "zz")):
            wrong: dict[str, Any] = {name: text}
            with self.subTest(name), self.assertRaisesRegex(errors.Argument, text):
                Ckpt(self.path, **wrong)
        with self.assertRaisesRegex(errors.Argument, "zero byte"):
            Ckpt(self.path + "\0x")
        self.assertFalse(Path(self.path).exists())

    def test_a_closed_checkpoint_and_a_strange_handle_are_refused(self) -> None:
        ckpt = Ckpt(self.path)
        handle = ckpt.declare([tensor("a", floats(1), (1,))])
        with self.assertRaisesRegex(errors.Argument, "handle"):
            ckpt.save(handle + 8, 1)
        with self.assertRaisesRegex(errors.Argument, "2 addresses for 1"):
            ckpt.save(handle, 1, addresses=[1, 2])
        ckpt.close()
        ckpt.close()
        for use in (ckpt.status, ckpt.fence, ckpt.events, lambda: ckpt.due(1)):
            with self.assertRaisesRegex(errors.Argument, "closed"):
                use()

    def test_strides_are_saved_row_major_and_read_into_others(self) -> None:
        turned, plain, third = floats(*range(6)), floats(*range(10, 16)), floats(*[0] * 24)
        with Ckpt(self.path) as ckpt:
            handle = ckpt.declare([tensor("a", turned, (3, 2), strides=(1, 3)), tensor("b", plain, (6,))])
            ckpt.wait(ckpt.save(handle, 1, addresses=[turned.buffer_info()[0], plain.buffer_info()[0]]))
            with self.assertRaisesRegex(errors.Argument, "'a' is strided and lies at another address"):
                ckpt.save(handle, 2, addresses=[plain.buffer_info()[0], plain.buffer_info()[0]])
        with Reader(self.path) as reader:
            reader.read(0, [tensor("a", third, (3, 2), strides=(8, 2)), tensor("b", plain, (6,))])
        self.assertEqual([list(third[8 * i:8 * i + 8]) for i in range(3)],
                         [[i, 0, 3 + i, 0, 0, 0, 0, 0] for i in range(3)])
        self.assertEqual(list(plain), list(range(10, 16)))
        dense = floats(*[0] * 6)
        with Ckpt(self.path) as ckpt:
            handle = ckpt.declare([tensor("b", plain, (6,)), tensor("a", dense, (3, 2))])
            self.assertEqual(ckpt.resume(handle), 1)
        self.assertEqual(list(dense), [0, 3, 1, 4, 2, 5])

    def test_strides_that_overlap_or_do_not_fit_are_refused(self) -> None:
        data = floats(*range(6))
        with Ckpt(self.path) as ckpt:
            for strides, text in (((0, 1), "overlap"), ((1, 1), "overlap"), ((1,), "strides"),
                                  ((2**62, 2**62), "reach beyond"), ((2**63, 1), "strides")):
                with self.subTest(strides), self.assertRaisesRegex(errors.Argument, f"'a'.*{text}"):
                    ckpt.declare([tensor("b", data, (2, 3), strides=(1, 2)),
                                  tensor("a", data, (2, 3), strides=strides)])
            self.assertTrue(ckpt.declare([tensor("a", data, (2, 3), strides=(3, 1))]))

    def test_no_library_and_a_strange_library_say_what_to_do(self) -> None:
        libc = next(iter(re.findall(r"\S*/libc\.so\.6", Path("/proc/self/maps").read_text())), "libc.so.6")
        for path, kind, text in (("/no/such.so", errors.NotFound, "PAWL_LIBRARY"),
                                 (libc, errors.Unsupported, "no function")):
            with self.subTest(path), mock.patch.dict(os.environ, PAWL_LIBRARY=path):
                with self.assertRaisesRegex(kind, text):
                    _abi.library.__wrapped__()

    def test_a_library_of_another_version_is_refused(self) -> None:
        with mock.patch.object(_abi, "__version__", "9.9.9"), self.assertRaisesRegex(errors.Unsupported,
                                                                                     "9.9.9"):
            _abi.library.__wrapped__()


class Saving(Folder):
    def test_what_was_saved_is_resumed_with_its_blob(self) -> None:
        self.save(3, 1.5, 2.5, blob=b"x\0y")
        data = floats(0, 0)
        with Ckpt(self.path) as ckpt:
            self.assertEqual(ckpt.resume(ckpt.declare([tensor("a", data, (2,))])), 3)
            self.assertEqual((ckpt.unit_count(), ckpt.unit_blob(0)), (1, b"x\0y"))
        self.assertEqual(list(data), [1.5, 2.5])

    def test_the_blob_of_a_run_without_checksums_is_there_too(self) -> None:
        self.save(3, 1.0, blob=b"b", unchecked=True)
        data = floats(0)
        with Ckpt(self.path, unchecked=True) as ckpt:
            ckpt.resume(ckpt.declare([tensor("a", data, (1,))]))
            self.assertEqual((ckpt.unit_count(), ckpt.unit_blob(0)), (1, b"b"))

    def test_a_fresh_run_resumes_nothing(self) -> None:
        with Ckpt(self.path) as ckpt:
            self.assertEqual(ckpt.resume(ckpt.declare([tensor("a", floats(1), (1,))])), 0)
            self.assertEqual(ckpt.unit_count(), 0)
            self.assertEqual(ckpt.stored_step(), 0)
            with self.assertRaises(errors.Argument):
                ckpt.unit_blob(0)

    def test_every_unit_has_its_blob(self) -> None:
        a, b = floats(1), floats(2)
        with Ckpt(self.path) as ckpt:
            for unit, data in enumerate((a, b)):
                handle = ckpt.declare([tensor("ab"[unit], data, (1,))])
                ckpt.save(handle, 5, unit=unit, unit_count=2, blob=b"unit %d" % unit)
        with Ckpt(self.path) as ckpt:
            self.assertEqual(ckpt.stored_step(), 5)
            self.assertEqual(ckpt.resume(ckpt.declare([tensor("a", a, (1,)), tensor("b", b, (1,))])), 5)
            self.assertEqual([ckpt.unit_blob(u) for u in range(ckpt.unit_count())], [b"unit 0", b"unit 1"])
            with self.assertRaises(errors.Argument):
                ckpt.unit_blob(2)

    def test_addresses_given_to_a_save_count_instead_of_the_declared_ones(self) -> None:
        declared, other = floats(1), floats(2)
        with Ckpt(self.path) as ckpt:
            ckpt.save(ckpt.declare([tensor("a", declared, (1,))]), 1, addresses=[other.buffer_info()[0]])
        with Ckpt(self.path) as ckpt:
            ckpt.resume(ckpt.declare([tensor("a", declared, (1,))]))
        self.assertEqual(declared, other)

    def test_other_threads_run_while_a_call_waits(self) -> None:
        data, ticks, done = floats(1), [0], threading.Event()

        def tick() -> None:
            while not done.wait(0.001):
                ticks[0] += 1

        with Ckpt(self.path, rank_count=2, start="a start") as ckpt:
            id = ckpt.save(ckpt.declare([tensor("a", data, (1,))]), 1, unit=0, unit_count=2)
            other = threading.Thread(target=tick)
            other.start()
            before = ticks[0]
            with self.assertRaises(errors.Timeout):
                ckpt.wait(id, "durable", 0.5)  # the other rank's part will not come
            had = ticks[0] - before
            done.set()
            other.join()
            self.assertGreater(had, 3, "the library held the interpreter's lock")
            with self.assertRaises(errors.Error):
                ckpt.close(0.0)

    def test_starting_from_scratch_has_to_be_said(self) -> None:
        self.save(1, 1.0)
        with contextlib.closing(Ckpt(self.path)) as ckpt:
            handle = ckpt.declare([tensor("a", data := floats(2), (1,))])
            with self.assertRaises(errors.Argument):
                ckpt.save(handle, 2)
            ckpt.from_scratch()
            self.assertTrue(ckpt.save(handle, 2))
        self.assertEqual(list(data), [2.0])

    def test_events_and_status_tell_of_a_save(self) -> None:
        with Ckpt(self.path, every=4) as ckpt:
            self.assertEqual([s for s in range(1, 9) if ckpt.due(s)], [4, 8])
            data = floats(1)
            save = ckpt.save(ckpt.declare([tensor("a", data, (1,))]), 4)
            ckpt.wait(save, "durable", 20)
            kinds = [e.kind for e in ckpt.events() if e.id == save]
            self.assertEqual(kinds, ["begun", "captured", "committed", "durable"])
            self.assertEqual(ckpt.events(), [])
            status = ckpt.status()
        self.assertEqual((status.durable_step, status.saves, status.failed), (4, 1, 0))
        self.assertRegex(status.run_id, "^[0-9a-f]{32}$")


class Reading(Folder):
    def test_a_box_of_a_tensor_is_read_and_nothing_beside_it(self) -> None:
        data, box = floats(*range(12)), floats(*[-1] * 6)
        with Ckpt(self.path) as ckpt:
            ckpt.save(ckpt.declare([tensor("a", data, (3, 4))]), 1, blob=b"b")
        with Reader(self.path) as reader:
            index = reader.newest()
            assert index is not None
            self.assertEqual(reader.tensors(index), [Tensor("a", "F32", (3, 4), None, None, 0)])
            reader.read(index, [tensor("a", box, (3, 4), begin=(1, 1), extent=(2, 2))])
            self.assertEqual((reader.blob(index, 0), reader.problems()), (b"b", []))
            self.assertGreater(reader.bytes_read(), 0)
        self.assertEqual(list(box), [5, 6, 9, 10, -1, -1])

    def test_steps_are_listed_newest_first_and_a_step_that_is_not_there_is_refused(self) -> None:
        data = floats(1)
        with Ckpt(self.path, keep=2) as ckpt:
            handle = ckpt.declare([tensor("a", data, (1,))])
            for step in (1, 2):
                ckpt.wait(ckpt.save(handle, step), "durable", 20)
        with Reader(self.path) as reader:
            self.assertEqual([s.step for s in reader.steps()], [2, 1])
            self.assertTrue(all(s.complete and not s.bad for s in reader.steps()))
            for index in (-1, 2):
                for use in (reader.tensors, lambda i: reader.read(i, []), lambda i: reader.blob(i, 0)):
                    with self.assertRaisesRegex(errors.NotFound, str(index)):
                        use(index)

    def test_a_flipped_byte_is_found(self) -> None:
        self.save(1, *map(float, range(64)))
        raw = floats(*range(64)).tobytes()
        hit = [f for f in Path(self.path).rglob("*") if f.is_file() and raw in f.read_bytes()]
        self.assertTrue(hit)
        for file in hit:
            file.write_bytes(file.read_bytes().replace(raw, raw[:-1] + b"\x7f"))
        into = floats(*[0] * 64)
        with Reader(self.path) as reader, self.assertRaises(errors.Corrupt):
            reader.read(0, [tensor("a", into, (64,))])
        self.assertEqual(len(into), 64)


class Importing(unittest.TestCase):
    def test_importing_pawl_loads_neither_torch_nor_numpy_nor_the_library(self) -> None:
        code = ("import sys; before = set(sys.modules); import pawl; new = set(sys.modules) - before; "
                "assert pawl.__version__ and pawl.errors.Busy; "
                "print(len(new), *sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', "
                "'ctypes')))")
        told = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")}).stdout.split()
        self.assertEqual(told[1:], [], "modules that importing pawl must not load")
        self.assertLess(int(told[0]), 40, "modules that importing pawl loads")

    def test_a_name_that_is_not_there_is_an_attribute_error(self) -> None:
        import pawl
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            pawl.nothing  # noqa: B018


if __name__ == "__main__":
    unittest.main()
