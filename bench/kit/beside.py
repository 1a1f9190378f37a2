"""What the machine alone makes of it: another process copies as many bytes and writes them past the page cache,
with nothing of the training's in its hands. What a program loses beside that it loses to the processors' shared
parts and to the device's interrupts, whoever saves."""
import mmap
import os

import torch

PIECE = 4 << 20


def state_bytes(model, optimizer):
    tensors = list(model.state_dict().values()) + [t for s in optimizer.state.values() for t in s.values()]
    return sum(t.numel() * t.element_size() for t in tensors if torch.is_tensor(t))


class AnotherProcess:
    """The interface of kit/savers.py; copies and writes the state's size, and no state."""

    def __init__(self, folder, interval, model, optimizer):
        self.interval, self.under_way = interval, False
        ask, self.asks = os.pipe()
        self.answers, answer = os.pipe()
        os.set_blocking(self.answers, False)
        self.child = os.fork()
        if self.child == 0:
            os.close(self.asks)
            serve(os.path.join(folder, "bytes"), state_bytes(model, optimizer), ask, answer)
        os.close(ask)
        os.close(answer)

    def after(self, step):
        if step % self.interval == 0:
            os.write(self.asks, b"s")
            self.under_way = True

    def busy(self):
        if self.under_way:
            try:
                self.under_way = os.read(self.answers, 1) != b"d"
            except BlockingIOError:
                pass
        return self.under_way

    def drain(self):
        while self.busy():
            pass

    def close(self):
        self.drain()
        os.close(self.asks)
        os.waitpid(self.child, 0)


def serve(path, size, ask, answer):
    pieces = max(1, size // PIECE)
    source, buffer = mmap.mmap(-1, PIECE), mmap.mmap(-1, pieces * PIECE)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    while os.read(ask, 1):
        for i in range(pieces):
            buffer[i * PIECE:(i + 1) * PIECE] = source
        for i in range(pieces):
            with memoryview(buffer)[i * PIECE:(i + 1) * PIECE] as piece:
                os.pwrite(file, piece, i * PIECE)
        os.fsync(file)
        os.write(answer, b"d")
    os._exit(0)
