"""One model at two sizes of a gang: plain PyTorch under torchrun, a batch shared exactly, checkpoints of Longboat."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import longboat

BATCH, MORE = 7, 5


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert size == longboat.world_size() == int(os.environ["LONGBOAT_WORLD_SIZE"]) and rank == longboat.rank()
    assert size == int(os.environ["LONGBOAT_NODES"]) * int(os.environ["LOCAL_WORLD_SIZE"])
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    folder, start = longboat.resume_from(), 0
    if folder:
        saved = torch.load(os.path.join(folder, "model.pt"))
        model.module.load_state_dict(saved["model"])
        start = saved["step"]
    share = longboat.batch_size(BATCH)
    total = torch.tensor(share)
    dist.all_reduce(total)
    changed = os.environ.get("LONGBOAT_WORLD_SIZE_CHANGED", "-")
    print(f"rank {rank} of {size}, before {changed}, from {start}, together {int(total)}", flush=True)
    target = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    open(os.environ["BEGUN"], "w").close()
    step, is_large = start, os.environ["LONGBOAT_NODES"] == os.environ["LARGE"]
    while not (is_large and step >= start + MORE):
        batch = torch.randn(share, 4)
        (((model(batch) - batch @ target) ** 2).sum() * size / BATCH).backward()
        step += 1
        if step % 5 == 0:
            with longboat.checkpoint(step) as place:
                torch.save({"model": model.module.state_dict(), "step": step}, os.path.join(place, "model.pt"))
        time.sleep(0.1)
    dist.destroy_process_group()


main()
