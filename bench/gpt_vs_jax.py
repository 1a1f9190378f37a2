"""Tokens per second of our GPT and of the same model compiled by JAX (XLA), in interleaved rounds of one run, both on
one core: medians and ratios as JSON lines. The model is GPT-2 as in model/gpt, written out in jax.numpy, with AdamW; forward,
backward and step are one compiled function that updates its arguments in place. Needs jax, which no other part of pawl does:

    python -m venv /some/folder && /some/folder/bin/pip install jax
    /some/folder/bin/python bench/gpt_vs_jax.py BUILD_DIR [--config layers,heads,width,context,batch,vocabulary]... [--rounds N]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # both sides, the child inherits it
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    print("skipped: no jax in this Python")
    sys.exit(0)

CONFIGS = ["4,4,256,128,8,256", "6,6,384,256,4,256"]


def initial(sizes):
    layers, _, width, context, _, vocabulary = sizes
    key = jax.random.PRNGKey(1)

    def normal(*shape):
        nonlocal key
        key, use = jax.random.split(key)
        return 0.02 * jax.random.normal(use, shape, jnp.float32)

    def norm():
        return [jnp.ones(width), jnp.zeros(width)]

    blocks = [{"ln1": norm(), "qkv": [normal(width, 3 * width), jnp.zeros(3 * width)],
               "out": [normal(width, width), jnp.zeros(width)], "ln2": norm(),
               "up": [normal(width, 4 * width), jnp.zeros(4 * width)],
               "down": [normal(4 * width, width), jnp.zeros(width)]} for _ in range(layers)]
    return {"wte": normal(vocabulary, width), "wpe": normal(context, width), "blocks": blocks, "ln": norm()}


def normed(x, p):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * p[0] + p[1]


def attention(x, p, heads):
    batch, time_, width = x.shape
    q, k, v = (y.reshape(batch, time_, heads, width // heads).transpose(0, 2, 1, 3)
               for y in jnp.split(x @ p["qkv"][0] + p["qkv"][1], 3, -1))
    scores = q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5
    mask = jnp.tril(jnp.ones((time_, time_), bool))
    mixed = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(batch, time_, width) @ p["out"][0] + p["out"][1]


def loss_of(params, tokens, heads):
    x = params["wte"][tokens[:, :-1]] + params["wpe"]
    for p in params["blocks"]:
        x = x + attention(normed(x, p["ln1"]), p, heads)
        x = x + jax.nn.gelu(normed(x, p["ln2"]) @ p["up"][0] + p["up"][1]) @ p["down"][0] + p["down"][1]
    logits = normed(x, params["ln"]) @ params["wte"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
    return -picked.mean()


def make_step(heads):
    def step(params, m, v, t, tokens):
        grads = jax.grad(loss_of)(params, tokens, heads)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)

        def update(p, a, b):
            return p * (1 - 1e-4 * 0.01) - 1e-4 * (a / (1 - 0.9 ** t)) / (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-8)

        return jax.tree.map(update, params, m, v), m, v, t + 1

    return jax.jit(step, donate_argnums=(0, 1, 2))


class Jax:
    def __init__(self, sizes):
        _, heads, _, context, batch, vocabulary = sizes
        params = initial(sizes)
        zeros = jax.tree.map(jnp.zeros_like, params)
        self.state = (params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.float32(1))
        self.tokens = jax.random.randint(jax.random.PRNGKey(2), (batch, context + 1), 0, vocabulary)
        self.function = make_step(heads)

    def step(self):
        began = time.perf_counter()
        self.state = self.function(*self.state, self.tokens)
        jax.block_until_ready(self.state)
        return time.perf_counter() - began


def ours(build, sizes, steps):
    program = os.path.join(build, "bench", "bench_model_throughput")
    out = subprocess.run([program] + [str(n) for n in sizes] + [str(steps)], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--config", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    for text in options.config or CONFIGS:
        sizes = [int(n) for n in text.split(",")]
        peer = Jax(sizes)
        peer.step()  # compiles
        mine, theirs = [], []
        for _ in range(options.rounds):
            mine.append(ours(options.build, sizes, options.steps))
            theirs.append(sizes[3] * sizes[4] / statistics.median(peer.step() for _ in range(options.steps)))
        ratios = [a / b for a, b in zip(mine, theirs)]
        print(json.dumps({"config": text, "pawl_tokens_per_s": round(statistics.median(mine)),
                          "jax_tokens_per_s": round(statistics.median(theirs)),
                          "ratio_to_jax": [round(f(ratios), 3) for f in (statistics.median, min, max)]}), flush=True)


main()
