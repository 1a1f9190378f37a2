"""The store of torch.distributed through which ranks agree, on any PyTorch that has one.

Promises: where PyTorch was built without libuv (Debian's), which its stores use unless told otherwise, the
store is made without it. Errors are PyTorch's: RuntimeError. Tested in tests/python/store_test.py."""

from __future__ import annotations

import datetime
from typing import Any

import torch.distributed as td


def open_store(host: str, port: int, serve: bool, patience: datetime.timedelta) -> Any:
    """A TCPStore of any number of ranks. serve: it is served here, on `port` or, for 0, on a free one;
    returns at once. Else it is that of host:port, waited for no longer than `patience`, as for each key
    later."""
    options: dict[str, Any] = {"timeout": patience,
                               "wait_for_workers": False} if serve else {"timeout": patience}
    try:
        return td.TCPStore(host, port, None, serve, **options)
    except RuntimeError as e:
        if "libuv" not in str(e):
            raise
    return td.TCPStore(host, port, None, serve, use_libuv=False, **options)
