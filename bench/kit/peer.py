"""One of PyTorch's ways to save, as a process with its own copy of the state: the other side of bench/ckpt_peers.py,
which starts it; bench/ckpt_peers.c is the same for pawl, and says what the figures are.

    python bench/kit/peer.py NAME FOLDER STATE.json

Every way overwrites its files of the last time, ends with an fsync, and compresses nothing. What they leave out, pawl
does: none verifies checksums, keeps the older checkpoint while the newer one is written, or flushes the folder's
entry.
"""
import json
import os
import resource
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions


def save_in_place(state, path):
    """torch.save over the blocks that the file has from the last time, which is faster here than truncating it."""
    with open(path, "r+b" if os.path.exists(path) else "wb") as file:
        torch.save(state, file)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


class TorchSave:
    def __init__(self, folder, state):
        self.path, self.state = os.path.join(folder, "torch_save.pt"), state

    def begin(self):
        save_in_place(self.state, self.path)

    def fence(self):
        """Until the state may be changed in place."""

    def finish(self):
        """Until it is durable."""


class Safetensors(TorchSave):
    def begin(self):
        safetensors.torch.save_file(self.state, self.path)
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())


class Dcp(TorchSave):
    """Two writing threads, a file of each; they are synced by its own option."""

    def writer(self):
        return dcp.FileSystemWriter(self.path + ".dcp", sync_files=True, thread_count=2)

    def begin(self):
        dcp.save(self.state, storage_writer=self.writer(), no_dist=True)


class DcpAsync(Dcp):
    """Its staged copy is kept from save to save, which spares it the allocation: the fastest of its settings here. Pinned and
    shared memory serve accelerators and other processes, and there are none."""

    def __init__(self, folder, state):
        super().__init__(folder, state)
        self.stager, self.future = DefaultStager(StagingOptions(False, False, False, False)), None

    def begin(self):
        self.future = dcp.async_save(self.state, storage_writer=self.writer(), async_stager=self.stager, no_dist=True)

    def finish(self):
        self.future.result()


class CheckFreq(TorchSave):
    """One in flight: a full copy into memory kept for it, then torch.save and fsync in a thread."""

    def __init__(self, folder, state):
        super().__init__(folder, state)
        self.copy, self.thread = {name: t.clone() for name, t in state.items()}, None

    def begin(self):
        for name, tensor in self.state.items():
            self.copy[name].copy_(tensor)
        self.thread = threading.Thread(target=self.persist)
        self.thread.start()

    def persist(self):
        save_in_place(self.copy, self.path)

    def finish(self):
        self.thread.join()


WAYS = {"torch.save": TorchSave, "safetensors": Safetensors, "dcp.save": Dcp, "dcp.async_save": DcpAsync,
        "checkfreq-like": CheckFreq}


def make_state(path):
    """Noise, page by page really there, like a state that was trained."""
    with open(path, encoding="utf-8") as file:
        tensors = json.load(file)["tensors"]
    torch.manual_seed(1)
    return {t["name"]: torch.rand(t["shape"], dtype=torch.float32) for t in tensors}


def memory(field):
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field + ":"))


def reset_peak():
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def save_once(way, rss_before):
    reset_peak()
    cpu_before, began = cpu(), time.perf_counter()
    way.begin()
    called = time.perf_counter()
    way.fence()
    free_again = time.perf_counter()
    way.finish()
    durable = time.perf_counter()
    return {"durable_s": durable - began, "blocked_s": free_again - began, "call_s": called - began, "cpu_s": cpu() - cpu_before,
            "extra_bytes": max(0, memory("VmHWM") - rss_before)}


def main():
    name, folder, states = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w")  # what else is printed must not be taken for an answer
    os.dup2(2, 1)
    state = make_state(states)
    rss_before = memory("VmRSS")
    way = WAYS[name](folder, state)
    total = sum(t.numel() * t.element_size() for t in state.values())
    print(json.dumps({"ready": True, "bytes": total, "torch": torch.__version__, "safetensors": safetensors.__version__}),
          file=answers, flush=True)
    for line in sys.stdin:
        if line != "save\n":
            sys.exit(f"peer: wanted a line `save`, had {line!r}")
        print(json.dumps(save_once(way, rss_before)), file=answers, flush=True)


main()
