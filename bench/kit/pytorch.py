"""What the benchmarks of PyTorch begin with: the library of the build folder, the package of this source tree,
one PyTorch without warnings.
"""
import importlib
import importlib.util
import logging
import os
import sys
import warnings
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python"


def load(build, threads=1):
    """The modules (torch, pawl), pawl with the library of `build`. Ends the program, well, where there is no PyTorch."""
    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch in this Python; scripts/setup check installs it")
        sys.exit(0)
    os.environ["PAWL_LIBRARY"] = str(Path(build, "libpawl_ckpt.so").resolve())
    sys.path.insert(0, str(PACKAGE))
    torch, pawl = importlib.import_module("torch"), importlib.import_module("pawl")
    warnings.filterwarnings("ignore", module="torch")
    logging.disable(logging.WARNING)  # accelerate tells at each save that a weight is tied
    torch.set_num_threads(threads)
    return torch, pawl
