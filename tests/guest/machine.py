"""A virtual machine of qemu that can be killed: disks in, lines of its second serial port out.

Emulated (accel=tcg), so that neither rights nor the host's nested virtualisation matter. The first serial
port, the kernel's words, goes to a file; what the guest's init and programs say (tests/guest/init) comes
through a pipe, and a thread reads it, so that nothing is lost when qemu dies. Used by scripts/guest.
"""
import queue
import shutil
import signal
import subprocess
import threading
import time

QEMU = "qemu-system-x86_64"
MEMORY = "1G"


def disk_options(number, kind, where):
    """qemu's words for disk `number`: kind "none" and "writeback" are caches of qemu over a file, "volatile"
    is a socket of volatile_disk, "scratch" a file that nobody needs after the machine."""
    node = f"disk{number}"
    if kind == "volatile":
        backend = f"driver=nbd,node-name={node},server.type=unix,server.path={where}"
    else:
        direct = "on" if kind == "none" else "off"
        no_flush = "on" if kind == "scratch" else "off"
        backend = (f"driver=raw,node-name={node},cache.direct={direct},cache.no-flush={no_flush},"
                   f"file.driver=file,file.filename={where},file.cache.direct={direct},"
                   f"file.cache.no-flush={no_flush},file.locking=off")
    return ["-blockdev", backend, "-device", f"virtio-blk-pci,drive={node},write-cache=on"]


class Machine:
    """One boot. `settings` reach the guest's init; `memory_file` keeps the guest's memory (hence its
    persistent memory) in a file that outlives it."""

    def __init__(self, image, disks, settings, console, memory_file=None, kernel_words=""):
        if not shutil.which(QEMU):
            raise FileNotFoundError(f"{QEMU} is not installed; run: scripts/setup soak")
        words = "console=ttyS0 quiet panic=-1 " + kernel_words
        words += "".join(f" pawl.{name}={value}" for name, value in settings.items())
        command = ["nice", QEMU, "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max", "-smp", "2",
                   "-m", MEMORY, "-nodefaults", "-display", "none", "-no-reboot", "-kernel", str(image[0]),
                   "-initrd", str(image[1]), "-append", words,
                   "-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console",
                   "-chardev", "stdio,id=words,signal=off", "-serial", "chardev:words"]
        if memory_file:
            command += ["-object", f"memory-backend-file,id=ram,size={MEMORY},mem-path={memory_file},share=on",
                        "-machine", "memory-backend=ram"]
        for number, (kind, where) in enumerate(disks):
            command += disk_options(number, kind, where)
        self.lines = queue.Queue()
        self.said = []
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        rest = b""
        while True:
            data = self.process.stdout.read1(65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.lines.put(line.decode(errors="replace").strip())
        self.lines.put(None)  # a last line without its end counts for nothing: it was not said in full

    def line(self, until):
        """The next line; None after the last one; TimeoutError at `until` (time.monotonic)."""
        try:
            line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None
        if line is not None:
            self.said.append(line)
        return line

    def kill(self):
        """SIGKILL, at once; then all that it had said."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        rest = []
        while (line := self.lines.get()) is not None:
            rest.append(line)
        self.said += rest
        return rest
