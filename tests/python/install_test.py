"""`pip install ./python` in a fresh environment, without a network: it finds its own library.

The library is built by CMake, as a user gets it; with PAWL_LIBRARY that file is packed instead. Exits 77
where this Python cannot make environments with pip."""

import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

USE = """
import array, pathlib, sys
import pawl
from pawl import _abi, _native
assert "torch" not in sys.modules and "numpy" not in sys.modules
folder = pathlib.Path(pawl.__file__).parent
assert folder.is_relative_to(sys.prefix), folder
assert (folder / "py.typed").exists()
assert _abi.candidates()[0] == str(folder / "libpawl_ckpt.so"), _abi.candidates()
data = array.array("f", [1.5, 2.5])
tensor = _native.Tensor("a", "F32", (2,), None, None, data.buffer_info()[0])
for expected in (0, 7):
    with _native.Ckpt(sys.argv[1]) as ckpt:
        handle = ckpt.declare([tensor])
        assert ckpt.resume(handle) == expected
        if not expected:
            ckpt.save(handle, 7)
            ckpt.fence()
    if not expected:
        data[0] = 0.0
print(list(data))
"""

WHEEL = ("import sys; sys.path.insert(0, sys.argv[1]); import pawl_build; "
         "print(pawl_build.build_wheel(sys.argv[2]))")


def run(command: list[Any], **env: str) -> str:
    whole = {k: v for k, v in os.environ.items() if k not in
             ("PAWL_LIBRARY", "PAWL_LIBRARY_TRAIN", "PYTHONPATH")}
    done = subprocess.run([str(c) for c in command], env={**whole, **env}, capture_output=True, text=True,
                          cwd="/")
    if done.returncode:
        raise AssertionError(f"{command} ended with "
                             f"{done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


class Install(unittest.TestCase):
    def test_an_installed_package_saves_and_resumes_with_the_library_it_was_built_with(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder, "venv", "bin", "python")
            run([sys.executable, "-m", "venv", Path(folder, "venv")])
            run([python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check",
                 ROOT / "python"])
            self.assertEqual(run([python, "-c", USE, Path(folder, "run")]), "[1.5, 2.5]\n")
            run([python, "-m", "pip", "check"])
            run([python, "-m", "pip", "uninstall", "-y", "pawl"])
            self.assertEqual([], list(Path(folder, "venv").rglob("*pawl*")),
                             "what uninstalling leaves behind")

    def test_a_library_that_is_named_is_packed_instead_of_built(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            named = Path(folder, "named.so")
            named.write_bytes(b"these bytes")
            name = run([sys.executable, "-c", WHEEL, ROOT / "python/build_backend", folder],
                       PAWL_LIBRARY=str(named))
            with zipfile.ZipFile(Path(folder, name.strip())) as wheel:
                self.assertEqual(wheel.read("pawl/libpawl_ckpt.so"), b"these bytes")

    def test_the_library_of_the_program_is_packed_where_it_is_named_alone(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            named, train = Path(folder, "named.so"), Path(folder, "train.so")
            named.write_bytes(b"these bytes")
            train.write_bytes(b"those bytes")
            for env, wanted in (({}, None), ({"PAWL_LIBRARY_TRAIN": str(train)}, b"those bytes")):
                name = run([sys.executable, "-c", WHEEL, ROOT / "python/build_backend", folder],
                           PAWL_LIBRARY=str(named), **env)
                with zipfile.ZipFile(Path(folder, name.strip())) as wheel:
                    packed = "pawl/libpawl_train.so" in wheel.namelist()
                    self.assertEqual(wheel.read("pawl/libpawl_train.so") if packed else None, wanted)
                    self.assertEqual(wheel.read("pawl/libpawl_ckpt.so"), b"these bytes")

    def test_a_library_that_does_not_exist_fails_the_installation_by_its_name(self) -> None:
        wrong = self.assertRaisesRegex(AssertionError, "no/such/library.so")
        with tempfile.TemporaryDirectory() as folder, wrong:
            run([sys.executable, "-c", WHEEL, ROOT / "python/build_backend", folder],
                PAWL_LIBRARY="/no/such/library.so")


if __name__ == "__main__":
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as missing:
        print(f"skipped: this Python makes no environments with pip ({missing})")
        sys.exit(77)
    unittest.main()
