"""Linear regression with DistributedDataParallel over gloo. Plain PyTorch, told one folder."""

import gc
import hashlib
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 12
FOLDER = os.environ["LONGBOAT_CHECKPOINT_DIR"]
CRASH_AT = int(os.environ.get("CRASH_AT", "-1"))


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # different starts: only the broadcast of DistributedDataParallel makes them equal
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    path, start = os.path.join(FOLDER, "model.pt"), 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
    print(f"rank {rank} of {size} starts at step {start}", flush=True)
    target = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    for step in range(start, STEPS):
        if start == 0 and step == CRASH_AT and rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = torch.randn(32, 4, generator=torch.Generator().manual_seed(step * size + rank))
        loss = ((model(batch) - batch @ target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)
    values = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]
    print(f"rank {rank} of {size} ends at step {STEPS} with parameters {digest}", flush=True)
    # Torch aborts at exit when something still refers to the group, and DistributedDataParallel is part of a cycle.
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()


main()
