"""Ways to save a PyTorch training while it goes on, each as a user would write it, for bench/python_save.py
and bench/python_overhead.py. A way has

    after(step)   after the optimizer's step: saves when `step` is a multiple of `interval`
    fence()       before the optimizer's step: returns when parameters may change
    busy()        whether a save is under way; False for those that save in after()
    drain()       returns when what was begun is durable
    close()

All save the whole state of model and optimizer and keep a good checkpoint at every moment. Peers end with an
fsync of files and folder, and overwrite no file in place. None of them has checksums that a load verifies.
"""
import importlib.util
import os
import shutil
import threading

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

import pawl


def sync(path):
    """Flushes a file, or a folder with the names in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save_file(state, path):
    """torch.save so that a crash leaves the old file or the new one."""
    with open(path + ".part", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)
    sync(os.path.dirname(path))


class Way:
    def __init__(self, folder, interval, model, optimizer):
        self.folder, self.interval, self.model, self.optimizer = folder, interval, model, optimizer
        self.path = os.path.join(folder, "checkpoint")
        self.count = 0

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "rng": torch.get_rng_state(), "saves": self.count}

    def after(self, step):
        if step % self.interval == 0:
            self.count += 1
            self.save()

    def save(self):
        raise NotImplementedError

    def fence(self):
        pass

    def busy(self):
        return False

    def drain(self):
        pass

    def close(self):
        self.drain()


class Pawl(Way):
    """As in docs/pytorch.md, with its defaults. The fence is its own hook; called here too, to be timed."""

    def __init__(self, folder, interval, model, optimizer):
        super().__init__(folder, interval, model, optimizer)
        self.ckpt = pawl.Checkpointer(self.path, model=model, optimizer=optimizer, every=interval)
        self.ckpt.resume()

    def after(self, step):
        self.ckpt.step(step)

    def fence(self):
        self.ckpt.fence()

    def busy(self):
        return self.ckpt.status()["in_flight"] > 0

    def drain(self):
        self.ckpt.wait()

    def close(self):
        self.ckpt.close()


class TorchSave(Way):
    def save(self):
        save_file(self.state(), self.path)


class CheckFreq(Way):
    """The scheme of CheckFreq (FAST 2021), of our own making: the snapshot is copied beside the next step's
    computing into memory kept for it and ends before the optimizer's step; it is written beside the steps that
    follow; one in flight: the next snapshot begins when the last one is on the disk."""

    def __init__(self, folder, interval, model, optimizer):
        super().__init__(folder, interval, model, optimizer)
        self.copies, self.thread, self.copied, self.failure = {}, None, threading.Event(), None
        self.copied.set()

    def save(self):
        self.drain()
        self.copied.clear()
        self.thread = threading.Thread(target=self.run, args=(self.state(),))
        self.thread.start()

    def run(self, state):
        try:
            snapshot = self.snapshot(state, "")
            self.copied.set()
            save_file(snapshot, self.path)
        except BaseException as e:  # handed to drain()
            self.failure = e
        finally:
            self.copied.set()

    def snapshot(self, value, path):
        if isinstance(value, torch.Tensor):
            if path not in self.copies:
                self.copies[path] = torch.empty_like(value)
            return self.copies[path].copy_(value)
        if isinstance(value, dict):
            return {key: self.snapshot(item, f"{path}/{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self.snapshot(item, f"{path}/{i}") for i, item in enumerate(value)]
        return value

    def fence(self):
        self.copied.wait()

    def busy(self):
        return self.thread is not None and self.thread.is_alive()

    def drain(self):
        if self.thread is not None:
            self.thread.join()
        if self.failure is not None:
            raise self.failure


class Dcp(Way):
    """torch.distributed.checkpoint, a folder of each save, the one before the last removed. Two writing threads,
    whose files are synced by its own option."""

    def writer(self):
        path = f"{self.path}.{self.count}"
        return path, dcp.FileSystemWriter(path, sync_files=True, thread_count=2)

    def done(self, path):
        sync(path)
        sync(self.folder)
        shutil.rmtree(f"{self.path}.{int(path.rpartition('.')[2]) - 1}", ignore_errors=True)

    def save(self):
        path, writer = self.writer()
        dcp.save(self.state(), storage_writer=writer, no_dist=True)
        self.done(path)


class DcpAsync(Dcp):
    """The fastest of its settings without an accelerator: the staged copy is kept, and made in a thread of its
    own until the optimizer's step. One in flight, as it wants."""

    def __init__(self, folder, interval, model, optimizer):
        super().__init__(folder, interval, model, optimizer)
        self.stager = DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=False,
                                                   use_async_staging=True, use_non_blocking_copy=False))
        self.response = self.writing = None

    def save(self):
        self.drain()
        self.writing, writer = self.writer()
        self.response = dcp.async_save(self.state(), storage_writer=writer, async_stager=self.stager,
                                       no_dist=True)

    def fence(self):
        if self.response is not None:
            self.response.staging_completion.result()

    def busy(self):
        return self.response is not None and not self.response.upload_completion.done()

    def drain(self):
        if self.response is not None:
            self.response.upload_completion.result()
            self.done(self.writing)
            self.response = None

    def close(self):
        self.drain()
        self.stager.close()


class Accelerate(Way):
    """Hugging Face Accelerate's save_state, then fsync of what it wrote, which it does not do."""

    def __init__(self, folder, interval, model, optimizer):
        super().__init__(folder, interval, model, optimizer)
        from accelerate import Accelerator
        self.accelerator = Accelerator(cpu=True)
        self.accelerator.prepare(model, optimizer)  # what it returns is for the loop, with the same tensors

    def save(self):
        path = f"{self.path}.{self.count}"
        self.accelerator.save_state(path)
        for name in os.listdir(path):
            sync(os.path.join(path, name))
        sync(path)
        sync(self.folder)
        shutil.rmtree(f"{self.path}.{self.count - 1}", ignore_errors=True)


WAYS = {"pawl": Pawl, "torch.save": TorchSave, "checkfreq-like": CheckFreq, "dcp.save": Dcp,
        "dcp.async_save": DcpAsync, "accelerate": Accelerate}


def available():
    """All but what is not installed: accelerate is not part of the set-up."""
    return [n for n in WAYS if n != "accelerate" or importlib.util.find_spec("accelerate") is not None]
