"""The same sum at two sizes of a gang: plain JAX, whose initialize() has no arguments, and checkpoints of Longboat."""

import os
import time

import jax
import numpy as np
from jax.experimental import multihost_utils

import longboat

BATCH, MORE = 7, 5


def main() -> None:
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    assert size == longboat.world_size() == int(os.environ["LONGBOAT_WORLD_SIZE"]) and rank == longboat.rank()
    folder, start = longboat.resume_from(), 0
    if folder:
        with open(os.path.join(folder, "step")) as file:
            start = int(file.read())
    shares = multihost_utils.process_allgather(np.array(longboat.batch_size(BATCH)))
    changed = os.environ.get("LONGBOAT_WORLD_SIZE_CHANGED", "-")
    print(f"rank {rank} of {size}, before {changed}, from {start}, together {int(shares.sum())}", flush=True)
    open(os.environ["BEGUN"], "w").close()
    step, is_large = start, os.environ["LONGBOAT_NODES"] == os.environ["LARGE"]
    while not (is_large and step >= start + MORE):
        multihost_utils.sync_global_devices(f"step {step}")
        step += 1
        if step % 5 == 0:
            with longboat.checkpoint(step) as place:
                with open(os.path.join(place, "step"), "w") as file:
                    file.write(str(step))
        time.sleep(0.1)


main()
