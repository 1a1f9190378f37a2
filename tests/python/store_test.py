"""The store of the ranks where PyTorch lacks libuv, and where it does not."""

from __future__ import annotations

import datetime
import importlib.util
import sys
import unittest
from typing import Any
from unittest import mock

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch.distributed as td  # noqa: E402

if not td.is_available():
    print("skipped: this PyTorch has no torch.distributed")
    sys.exit(77)

from pawl import _store  # noqa: E402

PATIENCE = datetime.timedelta(seconds=60)


def without_libuv(*place: Any, **options: Any) -> tuple[Any, ...]:
    if options.pop("use_libuv", True):
        raise RuntimeError("use_libuv was requested but PyTorch was build without libuv support")
    return *place, options


class StoreTest(unittest.TestCase):
    def test_what_one_end_writes_the_other_reads(self) -> None:
        server = _store.open_store("127.0.0.1", 0, True, PATIENCE)
        client = _store.open_store("127.0.0.1", server.port, False, PATIENCE)
        client.set("key", "word")
        self.assertEqual(b"word", server.get("key"))

    def test_without_libuv_it_is_made_without_it(self) -> None:
        with mock.patch.object(td, "TCPStore", without_libuv):
            for serve, options in ((True, {"timeout": PATIENCE, "wait_for_workers": False}),
                                   (False, {"timeout": PATIENCE})):
                self.assertEqual(("host", 7, None, serve, options),
                                 _store.open_store("host", 7, serve, PATIENCE))

    def test_another_error_is_that_error(self) -> None:
        made = mock.Mock(side_effect=RuntimeError("the address is taken"))
        with mock.patch.object(td, "TCPStore", made), self.assertRaisesRegex(RuntimeError, "is taken"):
            _store.open_store("host", 7, True, PATIENCE)
        made.assert_called_once()


if __name__ == "__main__":
    unittest.main()
