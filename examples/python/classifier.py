"""An image classifier that goes on after any kill: python examples/python/classifier.py --folder DIR

The images are drawn: discs, squares, triangles and crosses of any place and size under noise, made of their
index, so that nothing has to be downloaded. Every line that has to do with pawl says so. Tested in
tests/python/examples_test.py."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import pawl
from pawl.data import Loader, Sampler

SIDE = 24


class Shapes(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        numbers = torch.Generator().manual_seed(index)
        kind = index % 4
        size, x, y = torch.rand(3, generator=numbers).tolist()
        size, x, y = 4 + 5 * size, 7 + 10 * x, 7 + 10 * y
        across = (torch.arange(SIDE) - x).expand(SIDE, SIDE)
        down = (torch.arange(SIDE) - y).unsqueeze(1).expand(SIDE, SIDE)
        near, far = torch.minimum(across.abs(), down.abs()), torch.maximum(across.abs(), down.abs())
        inside = ((across.abs() < size) & (down.abs() < size),
                  across ** 2 + down ** 2 < size ** 2,
                  (down < size) & (down > 2 * across.abs() - size),
                  (near < size / 3) & (far < size),
                  )[kind]
        return (inside.float() + 0.3 * torch.randn(SIDE, SIDE, generator=numbers)).unsqueeze(0), kind


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Dropout(0.2), nn.Linear(16 * (SIDE // 4) ** 2, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="directory of the checkpoints")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=0, help="of the DataLoader")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = network()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, options.steps)
    data = Shapes()
    batches = Sampler(len(data), 32, seed=1)  # pawl: knows where it is in the data
    loader = Loader(DataLoader(data, num_workers=options.workers, batch_sampler=batches))  # pawl
    with pawl.Checkpointer(options.folder, model=model, optimizer=opt, scheduler=sched, sampler=loader,
                           every=10) as ckpt:  # pawl
        for step, (images, kinds) in zip(ckpt.steps(options.steps), loader):  # pawl: resumes, counts, saves
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, kinds)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            right = (logits.argmax(1) == kinds).float().mean().item()
            print(f"step {step} loss {loss.item()!r} right {right:.2f}", flush=True)


if __name__ == "__main__":
    main()
