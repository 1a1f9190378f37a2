"""Builds the wheel of pawl (PEP 517): the modules of python/pawl and the C library that they load.

The library is built with CMake from the source tree around this folder, by scripts/build, or copied from the
file that PAWL_LIBRARY names. libpawl_train.so comes with the program `pawl`, and is packed only where
PAWL_LIBRARY_TRAIN names one. Standard library only. The wheel is for this processor and system, and for every
Python 3 that the modules run on. Fails with what the compiler said. Tested in tests/python/install_test.py.
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


def library() -> bytes:
    """The C library's bytes: found by PAWL_LIBRARY, else built."""
    named = os.environ.get("PAWL_LIBRARY")
    if named:
        return Path(named).read_bytes()
    script = ROOT / "scripts" / "build"
    if not script.exists():
        raise RuntimeError(f"{ROOT} is not pawl's source tree: install from a clone, or set PAWL_LIBRARY to "
                           f"{LIBRARY}")
    with tempfile.TemporaryDirectory(prefix="pawl-build-") as folder:
        subprocess.run([str(script), folder, "--", "pawl_ckpt_shared"], cwd=ROOT, check=True)
        return (Path(folder) / LIBRARY).read_bytes()


def train_library() -> dict[str, bytes]:
    """The file for the package that PAWL_LIBRARY_TRAIN names, if it is set."""
    named = os.environ.get("PAWL_LIBRARY_TRAIN")
    return {f"pawl/{LIBRARY_TRAIN}": Path(named).read_bytes()} if named else {}


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
    return write_wheel(wheel_directory, {**files, f"pawl/{LIBRARY}": library(), **train_library()})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    raise RuntimeError("the library is built from the whole source tree: install from a clone of it")
