"""What the benchmark scripts say alike: medians with [least, largest], ratios within a round, the machine and the
versions they were taken on, JSON lines and Markdown tables. Standard library only.
"""
import contextlib
import json
import math
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOREIGN_MAX = 0.05  # of all cores: half a core in ten


def spread(values):
    """{"median", "least", "largest", "rounds"} of one figure's rounds."""
    return {"median": statistics.median(values), "least": min(values), "largest": max(values), "rounds": len(values)}


def ratio(over, under):
    """The same, of the ratios within each round: what both sides suffered in a round cancels."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def show(figure, digits=2, scale=1.0):
    """`1.44 [1.39, 1.56]`"""
    return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*(figure[k] * scale for k in ("median", "least", "largest")), d=digits)


def quantile(values, q):
    """Nearest rank: a value that was measured, not one between two."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * q) - 1)]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    print("\n" + "\n".join(lines) + "\n", flush=True)


def emit(**record):
    """One JSON object on a line of its own."""
    print(json.dumps(record), flush=True)


def first_line(path, prefix=""):
    try:
        with open(path, encoding="utf-8") as file:
            return next((line.split(":", 1)[-1].strip() for line in file if line.startswith(prefix)), None)
    except OSError:
        return None


def mount_of(folder):
    """(device, file system type) of the mount that holds a folder."""
    best = ("", "unknown", "unknown")
    real = os.path.realpath(folder)
    with open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            device, point, kind = line.split()[:3]
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[0]):
                best = (point, device, kind)
    return best[1:]


def commit_of(source):
    """The commit measured, with a `+` when the tree has changes; None outside a clone."""
    def git(*words):
        return subprocess.run(["git", "-C", str(source), *words], capture_output=True, text=True, check=True).stdout.strip()
    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(folder):
    device, kind = mount_of(folder)
    return {"cpu": first_line("/proc/cpuinfo", "model name") or platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "kernel": platform.release(), "system": system_name(), "file_system": kind, "device": device,
            "python": platform.python_version(), "pawl": commit_of(Path(__file__).parent), "load_at_start": os.getloadavg()[0]}


def system_name():
    name = first_line("/etc/os-release", "PRETTY_NAME")
    return name.split("=", 1)[-1].strip('"') if name else platform.system()


def cpu_ticks():
    """(busy, all) ticks of all cores since boot."""
    with open("/proc/stat", encoding="utf-8") as file:
        ticks = [int(t) for t in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def own_ticks():
    t = os.times()
    return (t.user + t.system + t.children_user + t.children_system) * os.sysconf("SC_CLK_TCK")


class Watch:
    """How much of the processors others used while we measured: a figure taken beside much foreign work says little.
    Children count as ours once they have ended, so `end` comes at the very end."""

    def __init__(self):
        self.busy, self.all = cpu_ticks()
        self.own, self.began = own_ticks(), time.monotonic()

    def end(self, **more):
        """The last record of a benchmark, and a warning where the figures above it deserve one."""
        busy, every = cpu_ticks()
        foreign = (busy - self.busy) - (own_ticks() - self.own)
        share = max(0.0, foreign / max(1, every - self.all))
        emit(**more, foreign_cpu_share=round(share, 3), minutes=round((time.monotonic() - self.began) / 60, 2))
        if share > FOREIGN_MAX:
            print(f"NOTE: others, the kernel among them, used {share:.0%} of the processors meanwhile: take these figures again when it is quiet")


@contextlib.contextmanager
def scratch(parent, name):
    """A folder on the disk to measure, gone afterwards, also when the script is interrupted or told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix=f"{name}.", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def program(build, name):
    path = Path(build) / "bench" / f"bench_{name}"
    if not path.exists():
        sys.exit(f"{path}: not there; build it first: scripts/build build")
    return str(path)


def run_json(words, **more):
    """The last line of a program's output, read as JSON; its errors go to ours."""
    done = subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True, **more)
    return json.loads(done.stdout.strip().splitlines()[-1])
