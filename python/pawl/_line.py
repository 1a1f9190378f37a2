"""Connections of all ranks to rank 0 that carry nothing: they show whose process has ended.

Promises: a process that ends, however, is known to rank 0, and rank 0's to the others, as soon as the
kernel has told; one that says goodbye first has closed. Nothing here waits for more than CONNECT_S. Ignores:
programs that do not name this start; a cut network, which shows nothing: then signs of life count (_link). A
forked child holds none of them. Tested in tests/python/group_test.py."""

from __future__ import annotations

import os
import socket
import threading
import weakref

CONNECT_S = 2.0
BYE = b"b"
_RANK_DIGITS = 8

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    for held in list(_sockets):
        held.close()


os.register_at_fork(after_in_child=_close_in_child)


def _take(connection: socket.socket, most: int) -> bytes | None:
    """What has come, b"": the other end is gone; None: nothing."""
    try:
        return connection.recv(most)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class Server:
    """Rank 0's end. `name` of this start. OSError: no port."""

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size = name.encode(), size
        self._listening = socket.create_server(("0.0.0.0", 0), backlog=max(128, size))
        self._listening.setblocking(False)
        _sockets.add(self._listening)
        self.port = int(self._listening.getsockname()[1])
        self._new: dict[socket.socket, bytes] = {}  # what each has said so far
        self._ranks: dict[int, socket.socket] = {}

    def ended(self) -> list[int]:
        """Ranks whose process has ended since the last call."""
        self._accept()
        for connection in list(self._new):
            self._read(connection)
        out = [rank for rank, connection in self._ranks.items() if _take(connection, 16) == b""]
        for rank in out:
            self._ranks.pop(rank).close()
        return out

    def _accept(self) -> None:
        while len(self._new) <= 2 * self._size + 16:  # strangers may keep some open
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setblocking(False)
            _sockets.add(connection)
            self._new[connection] = b""
        next(iter(self._new)).close()
        self._new.pop(next(iter(self._new)))

    def _read(self, connection: socket.socket) -> None:
        said, wanted = self._new[connection], len(self._name) + _RANK_DIGITS
        more = _take(connection, wanted - len(said))
        if more is None:
            return
        said = self._new[connection] = said + more
        if more and len(said) < wanted:
            return
        del self._new[connection]
        rank = said[len(self._name):]
        good = len(said) == wanted and said.startswith(self._name) and rank.isdigit()
        if good and int(rank) < self._size and int(rank) not in self._ranks:
            self._ranks[int(rank)] = connection
        else:
            connection.close()

    def close(self) -> None:
        """Says goodbye."""
        for connection in self._ranks.values():
            try:
                connection.send(BYE)
            except OSError:
                pass
        for held in (self._listening, *self._new, *self._ranks.values()):
            held.close()


class Client:
    """Another rank's end. OSError: rank 0 is not reached there."""

    def __init__(self, address: str, port: int, name: str, rank: int) -> None:
        self._connection = socket.create_connection((address, port), CONNECT_S)
        _sockets.add(self._connection)
        self._connection.sendall(f"{name}{rank:0{_RANK_DIGITS}}".encode())
        self._connection.setblocking(False)
        self._told, self._lock = "", threading.Lock()

    def gone(self) -> str:
        """Why rank 0 will say no more; "": it lives. From any thread."""
        with self._lock:
            if not self._told:
                said = _take(self._connection, 1)
                if said is not None:
                    self._told = "it has closed its Checkpointer" if said == BYE else "its process has ended"
            return self._told

    def close(self) -> None:
        self._told = self._told or "this rank has closed it"
        self._connection.close()
