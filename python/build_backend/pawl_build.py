"""Builds the wheel of pawl (PEP 517): the modules of python/pawl and the C library that they load.

The library comes from the source tree around this folder. Where that has been built (the folder `build`),
what is out of date is built there, and libpawl_train.so, for pipelines, is packed as well; else scripts/build
builds the one library aside. PAWL_LIBRARY and PAWL_LIBRARY_TRAIN name files to be packed instead. Standard
library only. The wheel is for this processor and system, and for every Python 3 that the modules run on.
Fails with what the compiler said. Tested in tests/python/install_test.py.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).resolve().parent.parent
ROOT = PYTHON.parent
LIBRARY = "libpawl_ckpt.so"
LIBRARY_TRAIN = "libpawl_train.so"
TARGETS = {LIBRARY: "pawl_ckpt_shared", LIBRARY_TRAIN: "pawl_train_shared"}
NAMED_BY = {LIBRARY: "PAWL_LIBRARY", LIBRARY_TRAIN: "PAWL_LIBRARY_TRAIN"}
EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time of a zip file: equal sources make equal wheels


def version() -> str:
    text = (PYTHON / "pawl" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if not found:
        raise RuntimeError(f"{PYTHON}/pawl/__init__.py: no line __version__ = \"...\"")
    return found[1]


def tag() -> str:
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def metadata() -> str:
    return "\n".join((
        "Metadata-Version: 2.1",
        "Name: pawl",
        f"Version: {version()}",
        "Summary: Training goes on where it stopped, bit for bit",
        "License: Apache-2.0",
        "Requires-Python: >=3.10",
        "Provides-Extra: torch",
        'Requires-Dist: torch>=1.13; extra == "torch"',
        "Provides-Extra: numpy",
        'Requires-Dist: numpy; extra == "numpy"',
        "",
    ))


def libraries() -> dict[str, bytes]:
    """The C libraries of the package, by file name: those that are named, else from the source tree."""
    given = {name: os.environ.get(variable) for name, variable in NAMED_BY.items()}
    named = {name: Path(path).read_bytes() for name, path in given.items() if path}
    return named if LIBRARY in named else {**from_tree(), **named}


def from_tree() -> dict[str, bytes]:
    script = ROOT / "scripts" / "build"
    if not script.exists():
        raise RuntimeError(f"{ROOT} is not pawl's source tree: install from a clone, or set PAWL_LIBRARY to "
                           f"{LIBRARY}")
    cmake = cmake_of(ROOT / "build")
    if cmake:
        jobs = os.environ.get("JOBS") or str(os.cpu_count() or 1)
        subprocess.run([cmake, "--build", str(ROOT / "build"), "--parallel", jobs, "--target",
                        *TARGETS.values()], cwd=ROOT, check=True)
        return {name: (ROOT / "build" / name).read_bytes() for name in TARGETS}
    with tempfile.TemporaryDirectory(prefix="pawl-build-") as folder:
        subprocess.run([str(script), folder, "--", TARGETS[LIBRARY]], cwd=ROOT, check=True)
        return {LIBRARY: (Path(folder) / LIBRARY).read_bytes()}


def cmake_of(build: Path) -> str | None:
    """The cmake that has configured the folder; None: nobody has, or of another tree, or for sanitizers and
    fuzzers, with which Python cannot load a library."""
    try:
        text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return None
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.MULTILINE))
    instrumented = cache.get("PAWL_SANITIZE") or cache.get("PAWL_FUZZ", "OFF") != "OFF"
    cmake = cache.get("CMAKE_COMMAND", "")
    ours = Path(cache.get("CMAKE_HOME_DIRECTORY", "")).resolve() == ROOT
    return cmake if ours and not instrumented and os.access(cmake, os.X_OK) else None


def write_wheel(folder: str, files: dict[str, bytes]) -> str:
    """Writes a wheel with these files, its metadata and its list of digests; returns its name."""
    info = f"pawl-{version()}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": metadata().encode(),
        f"{info}/WHEEL": ("Wheel-Version: 1.0\nGenerator: pawl\nRoot-Is-Purelib: false\n"
                          f"Tag: {tag()}\n").encode(),
    }
    record = "".join(f"{name},{digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"pawl-{version()}-{tag()}.whl"
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    modules = sorted((PYTHON / "pawl").rglob("*.py")) + [PYTHON / "pawl" / "py.typed"]
    files = {str(path.relative_to(PYTHON)): path.read_bytes() for path in modules}
    files.update((f"pawl/{name}", data) for name, data in libraries().items())
    return write_wheel(wheel_directory, files)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    raise RuntimeError("the library is built from the whole source tree: install from a clone of it")
