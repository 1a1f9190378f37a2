"""How much memory this program may still take, as the kernel and its control group say.

Promises: an estimate that errs towards less; 0 where nothing can be read. A control group's limit counts with
all that is charged to it, page cache too. Tested in tests/python/memory_test.py."""

from __future__ import annotations

from pathlib import Path

# Of what is available, for copies of the state: gradients and activations may not be there yet.
SHARE = 4


def available(root: Path = Path("/")) -> int:
    """Bytes; the least of what /proc/meminfo and the control groups above this process leave."""
    found = _meminfo(root) + _groups(root)
    return max(0, min(found, default=0))


def for_copies(ranks: int) -> int:
    """Bytes that each of so many processes on this machine may take for copies of its state."""
    return available() // SHARE // max(1, ranks)


def _meminfo(root: Path) -> list[int]:
    words = [line.split() for line in _lines(root / "proc/meminfo")]
    found = [_number(w[1:2]) for w in words if w[:1] == ["MemAvailable:"]]
    return [kib * 1024 for kib in found if kib is not None]


def _groups(root: Path) -> list[int]:
    out = []
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if controllers == "":
            out += _upwards(root / "sys/fs/cgroup", name, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            out += _upwards(root / "sys/fs/cgroup/memory", name, "memory.limit_in_bytes",
                            "memory.usage_in_bytes")
    return out


def _upwards(top: Path, name: str, limit: str, used: str) -> list[int]:
    """Of the group and all above it. In a container the upper ones, or its own name, may not be there."""
    folder = top / name.strip("/")
    out = []
    for place in [folder, *folder.parents]:
        most, taken = _number(_lines(place / limit)), _number(_lines(place / used))
        if most is not None and taken is not None:
            out.append(most - taken)
        if place == top:
            break
    return out


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


def _number(words: list[str]) -> int | None:
    """Of the first word; None where it is none: a group without a limit says "max"."""
    return int(words[0]) if words and words[0].strip().isdecimal() else None
