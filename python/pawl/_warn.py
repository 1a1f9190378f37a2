"""Warnings that point at the program's line, however deep in this package they arise.

Tested in tests/python/restore_test.py."""

from __future__ import annotations

import inspect
import os
import warnings

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(text: str, kind: type[Warning]) -> None:
    """warnings.warn() of the first caller outside this package."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)
