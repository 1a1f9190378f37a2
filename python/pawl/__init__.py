"""pawl for Python: training goes on where it stopped, bit for bit.

    ckpt = pawl.Checkpointer("runs/a", model=model, optimizer=optimizer)
    for step in ckpt.steps(1000):
        ...

`import pawl` loads neither torch nor numpy nor the C library: each name is fetched from its module when it is
first used. docs/pytorch.md is the guide; `pawl.errors` has the exceptions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Checkpointer": "checkpointer",
    "Sampler": "data",
    "Loader": "data",
    "Pipeline": "stages",
    "pipeline": "stages",
    "Error": "errors",
    "StateMismatch": "errors",
    "StepLost": "errors",
    "Preempted": "errors",
}

if TYPE_CHECKING:
    from .checkpointer import Checkpointer as Checkpointer
    from .data import Loader as Loader
    from .data import Sampler as Sampler
    from .errors import Error as Error
    from .errors import Preempted as Preempted
    from .errors import StateMismatch as StateMismatch
    from .errors import StepLost as StepLost
    from .stages import Pipeline as Pipeline
    from .stages import pipeline as pipeline

__all__ = [*_HOMES, "errors", "__version__"]


def __getattr__(name: str) -> Any:
    """Fetches a public name from its module (PEP 562)."""
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name == "errors":
        value = import_module(f"{__name__}.errors")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
