"""Linear regression in numpy, gradients averaged with MPI. Plain mpi4py."""

import hashlib
import os
import signal

import numpy as np
from mpi4py import MPI

STEPS = 12
FOLDER = os.environ["LONGBOAT_CHECKPOINT_DIR"]
CRASH_AT = int(os.environ.get("CRASH_AT", "-1"))


def main() -> None:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    path, start, weights = os.path.join(FOLDER, "model.npz"), 0, np.zeros((4, 1))
    if os.path.exists(path):
        saved = np.load(path)
        start, weights = int(saved["step"]), saved["weights"]
    print(f"rank {rank} of {size} starts at step {start} on {os.environ['LONGBOAT_NODE']}\n", end="", flush=True)
    target = np.array([[1.0], [-2.0], [3.0], [0.5]])
    for step in range(start, STEPS):
        if start == 0 and step == CRASH_AT and rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = np.random.default_rng(step * size + rank).normal(size=(32, 4))
        gradient = 2 * batch.T @ (batch @ weights - batch @ target) / len(batch)
        total = np.empty_like(gradient)
        world.Allreduce(gradient, total)
        weights = weights - 0.1 * total / size
        if rank == 0:
            np.savez(path + ".new.npz", step=step + 1, weights=weights)
            os.replace(path + ".new.npz", path)
    digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
    print(f"rank {rank} of {size} ends at step {STEPS} with parameters {digest}\n", end="", flush=True)


main()
