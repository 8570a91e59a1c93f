"""A Keras model under MultiWorkerMirroredStrategy; TF_CONFIG says who is who. Plain TensorFlow with tf-keras."""

import hashlib
import os
import signal

import numpy as np
import tensorflow as tf

STEPS = 12
FOLDER = os.environ["LONGBOAT_CHECKPOINT_DIR"]
CRASH_AT = int(os.environ.get("CRASH_AT", "-1"))


class Crash(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if epoch == CRASH_AT:
            os.kill(os.getpid(), signal.SIGKILL)


class Save(tf.keras.callbacks.Callback):
    """Every worker writes, as the strategy asks for; only the first one into the folder that counts."""

    def __init__(self, checkpoint: tf.train.Checkpoint, folder: str) -> None:
        super().__init__()
        self.checkpoint, self.folder = checkpoint, folder

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.checkpoint.step.assign(epoch + 1)
        tf.train.CheckpointManager(self.checkpoint, self.folder, max_to_keep=2).save()


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    rank, size = resolver.task_id, strategy.num_replicas_in_sync
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
        model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    checkpoint = tf.train.Checkpoint(model=model, step=tf.Variable(0, dtype=tf.int64))
    newest = tf.train.latest_checkpoint(FOLDER)
    if newest:
        checkpoint.restore(newest)
    start = int(checkpoint.step.numpy())
    print(f"rank {rank} of {size} starts at step {start}", flush=True)
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    labels = rows @ np.array([[1.0], [-2.0], [3.0], [0.5]], np.float32)
    data = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(64)
    folder = FOLDER if rank == 0 else os.path.join(FOLDER, f"worker-{rank}")
    callbacks = [Save(checkpoint, folder)]
    if start == 0 and rank == size - 1:
        callbacks.append(Crash())
    model.fit(data, epochs=STEPS, initial_epoch=start, callbacks=callbacks, verbose=0)
    values = b"".join(weight.tobytes() for weight in model.get_weights())
    digest = hashlib.sha256(values).hexdigest()[:16]
    print(f"rank {rank} of {size} ends at step {STEPS} with parameters {digest}", flush=True)


main()
