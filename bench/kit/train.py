"""The training that bench/python_save.py measures: the GPT of examples/python/gpt.py at a wanted size, on
random bytes, with AdamW, and whoever saves beside it.
"""
import importlib.util
import time
from pathlib import Path

import torch

LAYERS, HEAD, CONTEXT = 8, 64, 128


def example():
    """The module examples/python/gpt.py, which is no package."""
    path = Path(__file__).resolve().parents[2] / "examples" / "python" / "gpt.py"
    spec = importlib.util.spec_from_file_location("gpt_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gpt(millions):
    """The example's model with about so many million parameters: a block has 12 width^2 of them."""
    module = example()
    module.WIDTH = HEAD * max(1, round((millions * 1e6 / (12 * LAYERS)) ** 0.5 / HEAD))
    module.HEADS, module.LAYERS, module.CONTEXT = module.WIDTH // HEAD, LAYERS, CONTEXT
    return module.GPT()


class Training:
    """step() is what a user's loop does between two calls of his checkpointer; `way` (kit/savers.py) may stand
    still before the parameters change."""

    def __init__(self, millions, batch):
        torch.manual_seed(1)
        self.model = gpt(millions)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = batch
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.step(None)  # makes the optimizer's state

    def state_bytes(self):
        tensors = [*self.model.parameters(), *(t for s in self.optimizer.state.values() for t in s.values())]
        return sum(t.numel() * t.element_size() for t in tensors)

    def step(self, way):
        """Seconds: it took; it stood still before the optimizer's step; of this thread's processor time."""
        began, began_cpu = time.perf_counter(), time.thread_time()
        tokens = torch.randint(0, 256, (self.batch, CONTEXT + 1))
        logits = self.model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        computed = time.perf_counter()
        if way is not None:
            way.fence()
        fenced = time.perf_counter()
        self.optimizer.step()
        return time.perf_counter() - began, fenced - computed, time.thread_time() - began_cpu
