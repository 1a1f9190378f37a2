"""A disk with a cache that loses its content with the power, served to qemu over NBD.

A host's page cache outlives the death of qemu, so that killing qemu alone takes nothing away that was
written, flushed or not. Here a write lands in a cache first; a flush, or a write with FUA, puts it on the
medium (a file). `cut` ends the power: of what was not flushed a random part arrives, write by write, one in
four of them torn at 512 bytes. `stall_at` chooses the worst moment for it: just before a flush is carried out
the disk falls silent, so that what the machine still acknowledges cannot have needed that flush. The protocol: NBD, "fixed newstyle", reads, writes, flushes. Malformed
requests end the connection with an exception that `failure` keeps. Tested in tests/e2e/guest_test.py.
"""
import socket
import struct
import threading

SECTOR = 512
MAGIC, OPTION_MAGIC, REPLY_MAGIC = 0x4E42444D41474943, 0x49484156454F5054, 0x0003E889045565A9
REQUEST_MAGIC, ANSWER_MAGIC = 0x25609513, 0x67446698
OPTION_EXPORT, OPTION_ABORT, OPTION_INFO, OPTION_GO = 1, 2, 6, 7
REPLY_ACK, REPLY_INFO, REPLY_UNSUPPORTED = 1, 3, 0x80000001
FLAGS = 1 | 1 << 2 | 1 << 3  # has flags, can flush, knows FUA
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
COMMAND_FUA = 1
EINVAL = 22


class VolatileDisk:
    """`path` is the medium. `lies` makes every flush a lie: what a check of the checks wants."""

    def __init__(self, path, lies=False):
        self.path = path
        self.lies = lies
        self.lock = threading.Lock()
        with open(path, "rb") as medium:
            self.content = bytearray(medium.read())  # as the machine sees it
        self.pending = []  # (offset, bytes), in order of arrival, not on the medium
        self.flushes = 0
        self.stalled = threading.Event()
        self.flushes_left = None  # until the disk falls silent; None: never
        self.failure = None

    # What the machine asks for.

    def read(self, offset, size):
        with self.lock:
            return bytes(self.content[offset:offset + size])

    def write(self, offset, data, fua=False):
        with self.lock:
            self.content[offset:offset + len(data)] = data
            if fua and not self.lies:
                self._to_medium([(offset, data)])
                # An older write to the same place must not come back over this one.
                self.pending = [piece for old in self.pending for piece in outside(old, offset, len(data))]
            else:
                self.pending.append((offset, data))

    def flush(self):
        with self.lock:
            self.flushes += 1
            if not self.lies:
                self._to_medium(self.pending)
                self.pending = []

    def stall_at(self, flushes):
        """Falls silent at the flush after `flushes` more of them."""
        with self.lock:
            self.flushes_left = flushes

    def _silent(self, kind):
        """True once the disk answers no more; counts the flushes until then."""
        with self.lock:
            if kind == FLUSH and self.flushes_left is not None and not self.stalled.is_set():
                if self.flushes_left == 0:
                    self.stalled.set()
                else:
                    self.flushes_left -= 1
            return self.stalled.is_set()

    def _to_medium(self, writes):
        with open(self.path, "r+b") as medium:
            for offset, data in writes:
                medium.seek(offset)
                medium.write(data)

    # What the power does.

    def cut(self, chance):
        """Ends the power; `chance` is a random.Random. Returns (writes not flushed, of these lost or torn)."""
        with self.lock:
            kept_share, arrived, lost = chance.choice((0.0, 0.0, 0.5, chance.random())), [], 0
            for offset, data in self.pending:
                if chance.randrange(4) == 0:
                    starts = [at for at in range(0, len(data), SECTOR) if chance.random() < kept_share]
                    arrived += [(offset + at, data[at:at + SECTOR]) for at in starts]
                    lost += len(starts) * SECTOR < len(data)
                elif chance.random() < kept_share:
                    arrived.append((offset, data))
                else:
                    lost += 1
            self._to_medium(arrived)
            count, self.pending = len(self.pending), []
            return count, lost

    # The protocol.

    def serve(self, path):
        """Listens at the socket `path` and serves one connection in a thread of its own."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
        thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        thread.start()
        return thread

    def _run(self, listener):
        try:
            with listener, listener.accept()[0] as link:
                if greet(link, len(self.content)):
                    while self._answer(link):
                        pass
        except (ConnectionError, EOFError):
            pass  # the machine died: that is what it is for
        except Exception as failure:  # told by whoever joins the thread
            self.failure = failure

    def _answer(self, link):
        magic, flags, kind, handle, offset, size = struct.unpack(">IHHQQI", take(link, 28))
        if magic != REQUEST_MAGIC:
            raise ValueError(f"NBD request: wanted magic {REQUEST_MAGIC:#x}, had {magic:#x}")
        if kind == DISCONNECT:
            return False
        data, error = b"", 0
        payload = take(link, size) if kind == WRITE else b""
        if self._silent(kind):
            if kind == WRITE:  # under way when the power goes: it may arrive
                self.write(offset, payload)
            return True
        if kind in (READ, WRITE) and offset + size > len(self.content):
            error = EINVAL
        elif kind == READ:
            data = self.read(offset, size)
        elif kind == WRITE:
            self.write(offset, payload, bool(flags & COMMAND_FUA))
        elif kind == FLUSH:
            self.flush()
        else:
            error = EINVAL
        link.sendall(struct.pack(">IIQ", ANSWER_MAGIC, error, handle) + data)
        return True


def outside(write, offset, size):
    """The pieces of a write that lie outside offset..offset+size-1."""
    start, data = write
    end = start + len(data)
    if end <= offset or start >= offset + size:
        return [write]
    pieces = []
    if start < offset:
        pieces.append((start, data[:offset - start]))
    if end > offset + size:
        pieces.append((offset + size, data[offset + size - start:]))
    return pieces


def take(link, size):
    parts = []
    while size > 0:
        part = link.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def greet(link, size):
    """The handshake; False when the client only asked."""
    link.sendall(struct.pack(">QQH", MAGIC, OPTION_MAGIC, 1 | 2))
    no_zeroes = struct.unpack(">I", take(link, 4))[0] & 2
    while True:
        magic, option, length = struct.unpack(">QII", take(link, 16))
        if magic != OPTION_MAGIC:
            raise ValueError(f"NBD option: wanted magic {OPTION_MAGIC:#x}, had {magic:#x}")
        take(link, length)
        if option == OPTION_EXPORT:
            link.sendall(struct.pack(">QH", size, FLAGS) + (b"" if no_zeroes else bytes(124)))
            return True
        if option in (OPTION_GO, OPTION_INFO):
            reply(link, option, REPLY_INFO, struct.pack(">HQH", 0, size, FLAGS))
            reply(link, option, REPLY_ACK)
            if option == OPTION_GO:
                return True
        elif option == OPTION_ABORT:
            reply(link, option, REPLY_ACK)
            return False
        else:
            reply(link, option, REPLY_UNSUPPORTED)


def reply(link, option, kind, data=b""):
    link.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)
