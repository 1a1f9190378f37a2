"""Plans as CSV, executed by the real torch.distributed.pipelining runtime: it loads them, adds its messages to them, and
one training iteration over gloo processes gives the loss and the gradients of the whole model in one process.

Run by ctest with a Python that has torch; exits 77 when it has not."""
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

STAGES, MICROBATCHES, ROWS, WIDTH = 4, 8, 2, 12
POLICIES = {"1f1b": 1, "zb-h1": 1, "interleaved": 2, "zb-v": 2, "recycle": 1}  # chunks of a rank


def plan(policy, out, *more):
    pawl = os.path.join(os.environ["PAWL_BUILD_DIR"], "pawl")
    return subprocess.run([pawl, "plan", "--pipelines", "2", "--stages", str(STAGES), "--microbatches", str(MICROBATCHES),
                           "--policy", policy, "--format", "csv", "-o", out, *more], capture_output=True, text=True)


def layers(count):
    """The model, the same in every process."""
    torch.manual_seed(7)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH))
            for _ in range(count)]


def batch():
    generator = torch.Generator().manual_seed(11)
    return (torch.randn(MICROBATCHES * ROWS, WIDTH, generator=generator),
            torch.randn(MICROBATCHES * ROWS, WIDTH, generator=generator))


def loss_of(output, target):
    return ((output - target) ** 2).sum()


def reference(count):
    modules, (x, target) = layers(count), batch()
    total = loss_of(torch.nn.Sequential(*modules)(x), target)
    total.backward()
    return total.detach(), [[p.grad for p in m.parameters()] for m in modules]


def chunks_of_rank(path, rank):
    """The chunks that the rank's row names: where the model's pieces live follows from the plan alone."""
    with open(path) as f:
        row = f.read().splitlines()[rank].split(",")
    return sorted({int(cell[:min(cell.index(op) for op in "FIWB" if op in cell)]) for cell in row})


def iteration(rank, path, chunk_count):
    modules, (x, target) = layers(chunk_count), batch()
    mine = chunks_of_rank(path, rank)
    stages = [PipelineStage(modules[c], c, chunk_count, torch.device("cpu")) for c in mine]
    schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=loss_of, scale_grads=False)
    schedule._load_csv(path)
    losses = []
    last = {"target": target, "losses": losses} if chunk_count - 1 in mine else {}
    schedule.step(*([x] if 0 in mine else []), **last)
    total, gradients = reference(chunk_count)
    for c in mine:
        for ours, theirs in zip(modules[c].parameters(), gradients[c]):
            assert ours.grad is not None, f"{path}: rank {rank} chunk {c} has no gradient"
            torch.testing.assert_close(ours.grad, theirs, rtol=1e-4, atol=1e-5)
    if last:
        torch.testing.assert_close(torch.stack(losses).sum().detach(), total, rtol=1e-4, atol=1e-4)


def rank_main(rank, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=STAGES)
    for policy, chunks in POLICIES.items():
        iteration(rank, os.path.join(folder, f"{policy}.csv"), STAGES * chunks)
        dist.barrier()
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for policy in POLICIES:
            made = plan(policy, os.path.join(folder, f"{policy}.csv"))
            assert made.returncode == 0, f"{policy}: {made.stderr}"
        # forked, since importing torch is most of the time; nothing has run in it yet that a fork would lose
        mp.start_processes(rank_main, (folder, free_port()), STAGES, start_method="fork")
        refused = plan("recycle", os.path.join(folder, "no.csv"), "--fail", "1:2")
        assert refused.returncode == 69 and "csv has no re-routed work" in refused.stderr, refused
        assert refused.stderr.count("\n") == 1, refused.stderr
    print(f"ok: {', '.join(POLICIES)} on {STAGES} ranks")


if __name__ == "__main__":
    main()
