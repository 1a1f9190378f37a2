"""A small GPT on the bytes of a text: python examples/python/gpt.py --text FILE --folder DIR

It goes on after any kill with the losses that it would have had. Every line that has to do with pawl says so.
Tested in tests/python/examples_test.py.
"""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import pawl
from pawl.data import Loader, Sampler

CONTEXT, WIDTH, HEADS, LAYERS = 64, 64, 4, 2


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Runs of CONTEXT + 1 bytes, one after another."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        if len(self) < 1:
            raise SystemExit(f"{path} has {len(self.text)} bytes: a text of at least {CONTEXT + 1} is wanted")

    def __len__(self) -> int:
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = self.text[index * CONTEXT:(index + 1) * CONTEXT + 1].long()
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH),
                                 nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        self.head.weight = self.token.weight  # tied: saved once

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place.weight[:tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="what is learned: any file")
    parser.add_argument("--folder", required=True, help="directory of the checkpoints")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = GPT()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Windows(options.text)
    loader = Loader(DataLoader(data, batch_sampler=Sampler(len(data), 8, seed=1)))  # pawl: the position
    with pawl.Checkpointer(options.folder, model=model, optimizer=opt, sampler=loader,
                           every=10) as ckpt:  # pawl
        for step, (tokens, following) in zip(ckpt.steps(options.steps), loader):  # pawl: resumes, saves
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"step {step} loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()
