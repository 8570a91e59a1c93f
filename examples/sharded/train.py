"""A model whose parameters are split over all ranks: each saves and loads its own part (torch.distributed.checkpoint).

torchrun, or `longboat run job.yaml`; `longboat drill job.yaml` shows that it resumes.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import longboat

STEPS, EVERY, WIDTH = 30, 5, 64


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    truth = torch.randn(WIDTH)
    part = torch.zeros(WIDTH // dist.get_world_size(), requires_grad=True)
    mine = slice(dist.get_rank() * len(part), (dist.get_rank() + 1) * len(part))
    name = f"part{dist.get_rank()}"
    start = load(name, part) if longboat.resume_from() else 0
    for step in range(start + 1, STEPS + 1):
        # Every rank has the batch of this step, whichever attempt computes it.
        inputs = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(step))
        guess = inputs[:, mine] @ part.detach()
        dist.all_reduce(guess)
        error = guess - inputs @ truth
        with torch.no_grad():
            part -= 0.05 * (inputs[:, mine].T @ error) / len(inputs)
        longboat.step(step, loss=float((error**2).mean()))
        if step % EVERY == 0:
            with longboat.sharded_checkpoint(step) as folder:
                dcp.save({name: part.detach(), "step": torch.tensor(step)}, checkpoint_id=folder)
    dist.destroy_process_group()


def load(name: str, part: torch.Tensor) -> int:
    state = {name: torch.empty_like(part), "step": torch.tensor(0)}
    dcp.load(state, checkpoint_id=os.environ["LONGBOAT_RESUME_FROM"])
    with torch.no_grad():
        part.copy_(state[name])
    return int(state["step"])


if __name__ == "__main__":
    main()
