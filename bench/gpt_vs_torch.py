"""Tokens per second of our GPT and of PyTorch's (transformers' GPT-2, eager, AdamW plain and fused), one thread
each, in interleaved rounds of one run: medians and ratios as JSON lines. Ratios are given by wall time and by
processor time; on a machine that others use as well only the latter means something.

    python bench/gpt_vs_torch.py BUILD_DIR [--config layers,heads,width,context,batch,vocabulary]... [--rounds N]
"""
import argparse
import json
import os
import statistics
import subprocess
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel

CONFIGS = ["4,4,256,128,8,256", "6,6,384,256,4,256", "6,6,384,256,8,256"]


class Torch:
    def __init__(self, sizes, fused):
        layers, heads, width, context, batch, vocabulary = sizes
        torch.manual_seed(1)
        self.model = GPT2LMHeadModel(GPT2Config(
            vocab_size=vocabulary, n_positions=context, n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=None, eos_token_id=None))
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=fused)
        self.tokens = torch.randint(0, vocabulary, (batch, context + 1))
        self.vocabulary = vocabulary

    def step(self):
        began, began_cpu = time.perf_counter(), time.process_time()
        logits = self.model(input_ids=self.tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, self.vocabulary), self.tokens[:, 1:].reshape(-1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - began, time.process_time() - began_cpu


def ours(build, sizes, steps):
    program = os.path.join(build, "bench", "bench_model_throughput")
    out = subprocess.run([program] + [str(n) for n in sizes] + [str(steps)], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def compare(build, sizes, rounds, steps):
    peers = {"torch": Torch(sizes, False), "torch_fused": Torch(sizes, True)}
    tokens = sizes[3] * sizes[4]
    clocks = ("wall", "cpu")
    rates = {(name, clock): [] for name in ("pawl", *peers) for clock in clocks}
    for peer in peers.values():
        peer.step()
    for _ in range(rounds):
        report = ours(build, sizes, steps)
        rates["pawl", "wall"].append(report["tokens_per_s"])
        rates["pawl", "cpu"].append(report["tokens_per_cpu_s"])
        for name, peer in peers.items():
            times = [peer.step() for _ in range(steps)]
            for i, clock in enumerate(clocks):
                rates[name, clock].append(tokens / statistics.median(t[i] for t in times))
    result = {"config": dict(zip(["layers", "heads", "width", "context", "batch", "vocabulary"], sizes))}
    for (name, clock), values in rates.items():
        result[f"{name}_tokens_per_{clock}_s"] = round(statistics.median(values))
    for name in peers:
        for clock in clocks:
            ratios = [a / b for a, b in zip(rates["pawl", clock], rates[name, clock])]
            result[f"ratio_to_{name}_{clock}"] = [round(f(ratios), 3) for f in (statistics.median, min, max)]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--config", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for text in options.config or CONFIGS:
        sizes = [int(n) for n in text.split(",")]
        print(json.dumps(compare(options.build, sizes, options.rounds, options.steps)), flush=True)


main()
