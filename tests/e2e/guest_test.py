#!/usr/bin/env python3
"""The parts of the soak's virtual machine that can be tested without it: the disk that loses its cache, the
replay of dm-log-writes, the archive for the kernel. Standard library only."""
import importlib.machinery
import importlib.util
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/guest"))
from volatile_disk import FLUSH, READ, SECTOR, WRITE, VolatileDisk, outside  # noqa: E402

REPLAY = Path(os.environ.get("PAWL_BUILD_DIR", ROOT / "build")) / "tests/guest_base_replay"
SIZE = 64 * SECTOR
FLUSHED, FUA, DISCARD, MARK = 1, 2, 4, 8


def script(name):
    """A script of ours without a suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pawl-guest-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.medium = self.root / "disk"
        self.medium.write_bytes(bytes(SIZE))


class VolatileDiskTest(Folder):
    def test_what_was_flushed_survives_every_cut(self):
        for seed in range(50):
            self.medium.write_bytes(bytes(SIZE))
            disk = VolatileDisk(self.medium)
            disk.write(0, b"a" * 4096)
            disk.flush()
            disk.write(4096, b"b" * 4096)
            disk.cut(random.Random(seed))
            self.assertEqual(self.medium.read_bytes()[:4096], b"a" * 4096)

    def test_of_the_rest_all_none_and_parts_arrive_over_many_cuts(self):
        kept = set()
        for seed in range(200):
            self.medium.write_bytes(bytes(SIZE))
            disk = VolatileDisk(self.medium)
            disk.write(0, b"b" * 4096)
            disk.cut(random.Random(seed))
            kept.add(self.medium.read_bytes().count(b"b"))
        self.assertTrue({0, 4096} < kept, kept)
        self.assertTrue(all(count % SECTOR == 0 for count in kept), kept)

    def test_a_later_write_may_arrive_without_an_earlier_one(self):
        seen = set()
        for seed in range(200):
            self.medium.write_bytes(bytes(SIZE))
            disk = VolatileDisk(self.medium)
            disk.write(0, b"1" * SECTOR)
            disk.write(SECTOR, b"2" * SECTOR)
            disk.cut(random.Random(seed))
            data = self.medium.read_bytes()
            seen.add((data[:1], data[SECTOR:SECTOR + 1]))
        self.assertEqual(len(seen), 4, seen)

    def test_a_forced_write_survives_and_is_not_overtaken_by_an_older_one(self):
        for seed in range(50):
            disk = VolatileDisk(self.medium)
            disk.write(0, b"o" * 4096)
            disk.write(SECTOR, b"f" * SECTOR, fua=True)
            disk.cut(random.Random(seed))
            self.assertEqual(self.medium.read_bytes()[SECTOR:2 * SECTOR], b"f" * SECTOR)

    def test_a_write_is_cut_around_a_newer_one(self):
        self.assertEqual(outside((10, b"abcdef"), 12, 2), [(10, b"ab"), (14, b"ef")])
        self.assertEqual(outside((10, b"abc"), 13, 5), [(10, b"abc")])
        self.assertEqual(outside((10, b"abc"), 0, 50), [])

    def test_a_disk_that_lies_keeps_nothing_for_sure(self):
        lost = 0
        for seed in range(50):
            self.medium.write_bytes(bytes(SIZE))
            disk = VolatileDisk(self.medium, lies=True)
            disk.write(0, b"a" * 4096)
            disk.flush()
            disk.cut(random.Random(seed))
            lost += self.medium.read_bytes()[:4096] != b"a" * 4096
        self.assertGreater(lost, 10)


class ProtocolTest(Folder):
    """What qemu says, said by hand."""

    def setUp(self):
        super().setUp()
        self.disk = VolatileDisk(self.medium)
        self.thread = self.disk.serve(self.root / "socket")
        self.link = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.link.close)
        self.link.connect(str(self.root / "socket"))
        self.assertEqual(self.take(18)[:16], b"NBDMAGICIHAVEOPT")
        self.link.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, 0))
        size, flags = struct.unpack(">QH", self.take(10))
        self.assertEqual((size, flags & 1 << 2), (SIZE, 1 << 2))

    def take(self, size):
        data = b""
        while len(data) < size:
            part = self.link.recv(size - len(data))
            self.assertTrue(part, "the disk hung up")
            data += part
        return data

    def ask(self, kind, offset=0, size=0, data=b""):
        self.link.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, 77, offset, size) + data)

    def answer(self, size=0):
        magic, error, handle = struct.unpack(">IIQ", self.take(16))
        self.assertEqual((magic, handle), (0x67446698, 77))
        return error, self.take(0 if error else size)

    def test_what_is_written_is_read_back_and_flushed_to_the_medium(self):
        self.ask(WRITE, 512, 1024, b"w" * 1024)
        self.assertEqual(self.answer(), (0, b""))
        self.ask(READ, 512, 1024)
        self.assertEqual(self.answer(1024), (0, b"w" * 1024))
        self.assertNotIn(b"w", self.medium.read_bytes())
        self.ask(FLUSH)
        self.assertEqual(self.answer(), (0, b""))
        self.assertEqual(self.medium.read_bytes().count(b"w"), 1024)

    def test_a_write_past_the_end_is_refused(self):
        self.ask(WRITE, SIZE - 512, 1024, b"w" * 1024)
        self.assertEqual(self.answer()[0], 22)

    def test_a_silent_disk_carries_no_flush_out_and_answers_nothing(self):
        self.disk.stall_at(1)
        self.ask(FLUSH)
        self.assertEqual(self.answer(), (0, b""))
        self.ask(WRITE, 0, 512, b"w" * 512)
        self.assertEqual(self.answer(), (0, b""))
        self.ask(FLUSH)
        self.assertTrue(self.disk.stalled.wait(60))
        self.link.shutdown(socket.SHUT_WR)
        self.assertEqual(self.link.recv(1), b"")
        self.thread.join()
        self.assertNotIn(b"w", self.medium.read_bytes())

    def test_what_is_no_request_ends_the_connection_and_is_told(self):
        self.link.sendall(b"x" * 28)
        self.assertEqual(self.link.recv(1), b"")
        self.thread.join()
        self.assertIn("wanted magic", str(self.disk.failure))


class ReplayTest(Folder):
    def log(self, *entries, count=None):
        """A log of (flags, sector, data or mark)."""
        parts = [struct.pack("<QQQI", 0x6A736677736872, 1, len(entries) if count is None else count, SECTOR)]
        for flags, sector, data in entries:
            mark = data if flags & MARK else b""
            sectors = data if flags & DISCARD else 0 if flags & MARK else len(data) // SECTOR
            parts.append(struct.pack("<QQQQ", sector, sectors, flags, len(mark)) + mark)
            if isinstance(data, bytes) and not flags & MARK and data:
                parts.append(data)
        path = self.root / "log"
        path.write_bytes(b"".join(part + bytes(-len(part) % SECTOR) for part in parts))
        return path

    def replay(self, *words):
        return subprocess.run([REPLAY, *map(str, words)], capture_output=True, text=True, check=False)

    def test_entries_are_listed_with_flags_and_marks(self):
        log = self.log((0, 1, b"a" * 1024), (FLUSHED | FUA, 9, b"b" * 512), (MARK, 0, b"ack-7"), (DISCARD, 3, 2))
        said = self.replay("list", log).stdout.splitlines()
        self.assertEqual(said, ["0 - 2 -", "1 FU 1 -", "2 M 0 ack-7", "3 D 2 -"])

    def test_entries_are_applied_from_and_up_to_those_named(self):
        log = self.log((0, 0, b"a" * 512), (0, 1, b"b" * 512), (0, 0, b"c" * 512), (DISCARD, 1, 1))
        self.assertEqual(self.replay("apply", log, self.medium, 0, 2).returncode, 0)
        self.assertEqual(self.medium.read_bytes()[:1024], b"a" * 512 + b"b" * 512)
        self.assertEqual(self.replay("apply", log, self.medium, 2, 4).returncode, 0)
        self.assertEqual(self.medium.read_bytes()[:1024], b"c" * 512 + bytes(512))

    def test_a_torn_cache_keeps_some_sectors_and_all_that_was_forced(self):
        log = self.log((0, 0, b"a" * 4096), (FUA, 8, b"f" * 512), (0, 16, b"b" * 4096))
        kept = set()
        for seed in range(60):
            self.medium.write_bytes(bytes(SIZE))
            self.assertEqual(self.replay("tear", log, self.medium, 0, 3, seed).returncode, 0)
            data = self.medium.read_bytes()
            self.assertEqual(data.count(b"f"), 512)
            kept.add((data.count(b"a") // SECTOR, data.count(b"b") // SECTOR))
        self.assertGreater(len(kept), 8, kept)
        self.assertIn((0, 0), kept)

    def test_a_damaged_log_is_refused_with_the_place(self):
        good = self.log((0, 0, b"a" * 512)).read_bytes()
        for offset, value, wanted in ((0, b"x", "no log"), (8, b"\2", "version"), (24, b"\3", "sector size"),
                                      (SECTOR + 16, b"\xff", "flags"), (SECTOR + 25, b"\xff", "mark")):
            (self.root / "log").write_bytes(good[:offset] + value + good[offset + 1:])
            done = self.replay("list", self.root / "log")
            self.assertEqual((done.returncode, wanted in done.stderr), (1, True), done.stderr)
        self.assertEqual(self.replay("apply", self.log((0, 0, b""), count=9), self.medium, 0, 9).returncode, 1)


class ImageTest(unittest.TestCase):
    def test_the_archive_is_what_the_kernel_unpacks(self):
        archive = script("guest-image").Archive()
        archive.folder("bin")
        archive.file("bin/x", b"12345")
        data = archive.bytes()
        self.assertEqual(data[:6], b"070701")
        self.assertEqual(len(data) % 4, 0)
        at = data.index(b"bin/x") - 110
        self.assertEqual(int(data[at + 54:at + 62], 16), 5)  # its size
        self.assertEqual(at % 4, 0)
        self.assertIn(b"TRAILER!!!", data)


if __name__ == "__main__":
    unittest.main()
