"""A slow disk: a control group in which writes to one device are limited, for the processes put into it. Needs root and
the kernel's blkio throttle (cgroup v1) or io controller (cgroup v2). The group is removed by close(), and one left by
a process that was killed is removed by the next.
"""
import os
from pathlib import Path

PREFIX = "pawl-bench-"
V1, V2 = "cgroup v1 blkio", "cgroup v2 io"


class Unavailable(Exception):
    """In words: why this machine cannot do it."""


def whole_disk(folder):
    """MAJOR:MINOR of the disk under a folder: limits are set on disks, not on partitions."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    entry = Path("/sys/dev/block") / number
    if not entry.exists():
        raise Unavailable(f"{folder} lies on no block device ({number})")
    if (entry / "partition").exists():
        number = (entry.resolve().parent / "dev").read_text().strip()
    return number


def mounts(kind):
    with open("/proc/self/mounts", encoding="utf-8") as file:
        fields = [line.split() for line in file]
    return [(Path(f[1]), f[3].split(",")) for f in fields if f[2] == kind]


def remove_leftovers(root):
    for group in root.glob(PREFIX + "*"):
        if not Path("/proc", group.name.removeprefix(PREFIX)).exists():
            remove(group)


def remove(group):
    try:
        group.rmdir()
    except OSError:
        pass


class Throttle:
    def __init__(self, folder):
        self.disk = whole_disk(folder)
        self.group, self.enabled_in = None, None
        self.version, root = self.find_root()
        remove_leftovers(root)
        try:
            if self.version == V2:
                self.enable(root)
            group = root / f"{PREFIX}{os.getpid()}"
            group.mkdir(exist_ok=True)
            self.group = group
            self.set(1 << 40)
            self.set(0)
        except OSError as error:
            self.close()
            raise Unavailable(f"{error.filename}: {error.strerror}") from error

    @staticmethod
    def find_root():
        for root, options in mounts("cgroup"):
            if "blkio" in options:
                return V1, root
        for root, _ in mounts("cgroup2"):
            if "io" in (root / "cgroup.controllers").read_text().split():
                return V2, root
        raise Unavailable("neither the blkio controller of cgroup v1 nor the io controller of v2 is mounted")

    def enable(self, root):
        control = root / "cgroup.subtree_control"
        if "io" not in control.read_text().split():
            control.write_text("+io")
            self.enabled_in = control

    def set(self, bytes_per_second):
        """0: no limit."""
        if self.version == V1:
            (self.group / "blkio.throttle.write_bps_device").write_text(f"{self.disk} {bytes_per_second}")
        else:
            (self.group / "io.max").write_text(f"{self.disk} wbps={bytes_per_second or 'max'}")

    def enter(self):
        """For subprocess's preexec_fn: the child goes in before it becomes the program."""
        with open(self.group / "cgroup.procs", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))

    def close(self):
        if self.group is not None:
            remove(self.group)
        if self.enabled_in is not None:
            self.enabled_in.write_text("-io")
