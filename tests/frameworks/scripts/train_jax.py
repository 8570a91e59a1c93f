"""Linear regression, data parallel over the devices of all processes. Plain JAX: initialize() has no arguments."""

import hashlib
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS = 12
FOLDER = os.environ["LONGBOAT_CHECKPOINT_DIR"]
CRASH_AT = int(os.environ.get("CRASH_AT", "-1"))


@jax.jit
def update(weights: jax.Array, batch: jax.Array, labels: jax.Array) -> jax.Array:
    gradient = jax.grad(lambda w: jnp.mean((batch @ w - labels) ** 2))(weights)
    return weights - 0.1 * gradient


def main() -> None:
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_rank = NamedSharding(mesh, PartitionSpec("data"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    path, start, weights = os.path.join(FOLDER, "model.npz"), 0, np.zeros((4, 1), np.float32)
    if os.path.exists(path):
        saved = np.load(path)
        start, weights = int(saved["step"]), saved["weights"]
    print(f"rank {rank} of {size} starts at step {start}", flush=True)
    weights = jax.make_array_from_process_local_data(everywhere, weights)
    target = np.array([[1.0], [-2.0], [3.0], [0.5]], np.float32)
    for step in range(start, STEPS):
        if start == 0 and step == CRASH_AT and rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = np.random.default_rng(step * size + rank).normal(size=(32, 4)).astype(np.float32)
        batch = jax.make_array_from_process_local_data(by_rank, rows)
        labels = jax.make_array_from_process_local_data(by_rank, rows @ target)
        weights = update(weights, batch, labels)
        if rank == 0:
            np.savez(path + ".new.npz", step=step + 1, weights=np.asarray(weights.addressable_data(0)))
            os.replace(path + ".new.npz", path)
    digest = hashlib.sha256(np.asarray(weights.addressable_data(0)).tobytes()).hexdigest()[:16]
    multihost_utils.sync_global_devices("end")
    print(f"rank {rank} of {size} ends at step {STEPS} with parameters {digest}", flush=True)


main()
