"""Data parallel training that goes on with another number of ranks:

    torchrun --standalone --nproc-per-node 4 examples/python/distributed.py --folder runs/a --steps 40
    torchrun --standalone --nproc-per-node 3 examples/python/distributed.py --folder runs/a --steps 80

The second command takes up the first one's step on three ranks: the same global batches, each sample once an
epoch. Every line that has to do with pawl says so. Tested in tests/python/examples_test.py."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import pawl
from pawl.data import Loader, Sampler

# Of all ranks together: a multiple of 4 and of 3, so that every rank's mean weighs the same
GLOBAL_BATCH = 24


class Curve(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """Points of a function of eight variables, made of their index."""

    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        x = torch.rand(8, generator=torch.Generator().manual_seed(index)) * 2 - 1
        return index, x, (x[:4] * x[4:]).sum().sin().unsqueeze(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="directory of the checkpoints")
    parser.add_argument("--steps", type=int, default=80)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    layers = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    model = DistributedDataParallel(layers)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = Curve()
    loader = Loader(DataLoader(data, batch_sampler=Sampler(len(data), GLOBAL_BATCH, seed=1)))  # pawl: share
    with pawl.Checkpointer(options.folder, model=model, optimizer=opt, sampler=loader,
                           every=10) as ckpt:  # pawl
        for step, (numbers, x, y) in zip(ckpt.steps(options.steps), loader):  # pawl: resumes, counts, saves
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            report(step, loss.detach(), numbers)
    dist.destroy_process_group()


def report(step: int, loss: torch.Tensor, numbers: torch.Tensor) -> None:
    """Rank 0 prints the mean loss and which samples the ranks trained on, in the order of the ranks."""
    everyones = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, numbers)
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        samples = ",".join(str(n) for n in torch.cat(everyones).tolist())
        print(f"step {step} loss {loss.item() / dist.get_world_size()!r} samples {samples}", flush=True)


if __name__ == "__main__":
    main()
