"""`pip install ./python` in a fresh environment, without a network: it finds its own libraries.

They are built by CMake, as a user gets them; with PAWL_LIBRARY that file is packed instead. Exits 77 where
this Python cannot make environments with pip."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/build_backend"))
import pawl_build  # noqa: E402

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
            self.check_pipeline(python, Path(folder))
            run([python, "-m", "pip", "check"])
            run([python, "-m", "pip", "uninstall", "-y", "pawl"])
            self.assertEqual([], list(Path(folder, "venv").rglob("*pawl*")),
                             "what uninstalling leaves behind")

    def check_pipeline(self, python: Path, folder: Path) -> None:
        """`pawl train` with its workers' library nowhere but in the package."""
        torch, pawl = importlib.util.find_spec("torch"), ROOT / "build/pawl"
        if not pawl_build.cmake_of(ROOT / "build") or not pawl.exists() or not torch or not torch.origin:
            print("no pipeline was trained: that needs the folder build, and PyTorch")
            return
        (folder / "text").write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(300)))
        program = shutil.copy(pawl, folder)  # alone: no library is beside it
        options = ["torch.options=" + json.dumps({"text": str(folder / "text")}), "parallel.pipelines=1",
                   f"run.dir={folder}/trained", f"torch.module={ROOT}/examples/python/pipeline.py"]
        told = run([program, "train", ROOT / "examples/python/pipeline.yaml", "--json", "--steps", "1",
                    *(word for option in options for word in ("--set", option))],
                   PAWL_PYTHON=str(python), PYTHONPATH=str(Path(torch.origin).parents[1]))
        self.assertEqual(json.loads(told)["final_step"], 1)

    def test_a_folder_that_was_built_gives_both_libraries_and_no_other_is_used(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tree = self.tree(folder)
            good, aside = (tree / "build/CMakeCache.txt").read_text(), {"ckpt": "aside\n"}
            for cache, wanted in ((good, {"ckpt": "build\n", "train": "build\n"}), (None, aside),
                                  (good + "PAWL_SANITIZE:STRING=address\n", aside),
                                  (good + "PAWL_FUZZ:BOOL=ON\n", aside),
                                  (good.replace(f"{tree}\n", "/elsewhere\n"), aside),
                                  (good.replace("/cmake", "/gone"), aside)):
                (tree / "build/CMakeCache.txt").unlink(missing_ok=True)
                if cache:
                    (tree / "build/CMakeCache.txt").write_text(cache)
                with self.subTest(cache):
                    self.assertEqual(self.packed(tree), wanted)
            (tree / "cmake").write_text("#!/bin/sh\nexit 7\n")
            (tree / "build/CMakeCache.txt").write_text(good)
            with self.assertRaisesRegex(AssertionError, "pawl_train_shared.* returned non-zero .* 7"):
                self.packed(tree)

    def tree(self, folder: str) -> Path:
        """A source tree that has been built, with a cmake and a scripts/build that say who they are."""
        tree = Path(folder).resolve()
        shutil.copytree(ROOT / "python", tree / "python", ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in (("cmake", "for f in ckpt train; do echo build >$2/libpawl_$f.so; done"),
                           ("scripts/build", "echo aside >$1/libpawl_ckpt.so")):
            (tree / name).parent.mkdir(exist_ok=True)
            (tree / name).write_text(f"#!/bin/sh\n{text}\n")
            (tree / name).chmod(0o755)
        (tree / "build").mkdir()
        (tree / "build/CMakeCache.txt").write_text(f"CMAKE_COMMAND:INTERNAL={tree}/cmake\n"
                                                   f"CMAKE_HOME_DIRECTORY:INTERNAL={tree}\n")
        return tree

    def packed(self, tree: Path, **env: str) -> dict[str, str]:
        """What the libraries hold in the wheel that a tree's backend makes."""
        name = run([sys.executable, "-c", WHEEL, tree / "python/build_backend", tree], **env).strip()
        with zipfile.ZipFile(tree / name) as wheel:
            return {path[len("pawl/libpawl_"):-len(".so")]: wheel.read(path).decode()
                    for path in wheel.namelist() if path.endswith(".so")}

    def test_libraries_that_are_named_are_packed_instead(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tree = self.tree(folder)
            named, train = (tree / "named.so", tree / "train.so")
            named.write_text("these bytes")
            train.write_text("those bytes")
            both = {"PAWL_LIBRARY": str(named), "PAWL_LIBRARY_TRAIN": str(train)}
            for words, wanted in ((["PAWL_LIBRARY"], {"ckpt": "these bytes"}),
                                  (["PAWL_LIBRARY_TRAIN"], {"ckpt": "build\n", "train": "those bytes"}),
                                  (list(both), {"ckpt": "these bytes", "train": "those bytes"})):
                self.assertEqual(self.packed(tree, **{word: both[word] for word in words}), wanted)

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
