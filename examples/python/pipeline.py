"""A small GPT on the bytes of a text as a pipeline of PyTorch modules: pawl train
examples/python/pipeline.yaml

Kill its workers, or all of it, and start it again: the weights are those of an undisturbed run, bit for bit.
Tested in tests/python/pipeline_run_test.py.
"""
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import pawl

CONTEXT, WIDTH, HEADS = 64, 64, 4


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Runs of CONTEXT + 1 bytes, one after another."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        if len(self) < 1:
            raise ValueError(f"{path} has {len(self.text)} bytes: a text of at least {CONTEXT + 1} is wanted")

    def __len__(self) -> int:
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = self.text[index * CONTEXT:(index + 1) * CONTEXT + 1].long()
        return window[:-1], window[1:]


class Embed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        at: torch.Tensor = self.place.weight[:tokens.shape[1]]
        return self.token(tokens) + at


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH),
                                 nn.Dropout(dropout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


def loss(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def adamw(named: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.AdamW:
    """Matrices decay; norms and biases do not."""
    named = list(named)
    return torch.optim.AdamW([{"params": [p for _, p in named if p.dim() > 1], "weight_decay": 0.1},
                              {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0}], lr=1e-3)


def pipeline(options: dict[str, Any]) -> pawl.Pipeline:
    """options: those of the specification, `torch: {options: ...}`."""
    dropout = options.get("dropout", 0.1)
    front = nn.Sequential(Embed(), Block(dropout))
    back = nn.Sequential(Block(dropout), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False))
    return pawl.pipeline(stages=[front, back], loss=loss, data=Windows(options["text"]), optimizer=adamw)
