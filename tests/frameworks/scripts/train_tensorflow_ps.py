"""Parameter servers in TensorFlow 2: the chief coordinates, the others serve it. TF_CONFIG says who is who."""

import hashlib
import os
import signal

import tensorflow as tf

STEPS = 12
FOLDER = os.environ["LONGBOAT_CHECKPOINT_DIR"]
CRASH_AT = int(os.environ.get("CRASH_AT", "-1"))


def serve(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc", start=True
    )
    print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
    server.join()


def coordinate(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((4, 1)))
        step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(weights=weights, step=step)
    manager = tf.train.CheckpointManager(checkpoint, FOLDER, max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint)
    target = tf.constant([[1.0], [-2.0], [3.0], [0.5]])

    @tf.function
    def train(seed: tf.Tensor) -> tf.Tensor:
        batch = tf.random.stateless_normal((32, 4), seed=[seed, 0])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch @ weights - batch @ target) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    @tf.function
    def read() -> tf.Tensor:
        return tf.identity(weights)

    start = int(step.numpy())
    print(f"chief starts at step {start} with {len(resolver.cluster_spec().job_tasks('worker'))} workers", flush=True)
    for number in range(start, STEPS):
        if start == 0 and number == CRASH_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        coordinator.schedule(train, args=(tf.constant(number),))
        coordinator.join()
        step.assign(number + 1)
        manager.save()
    seen = [coordinator.schedule(read) for _ in range(8)]
    coordinator.join()
    digests = {hashlib.sha256(value.fetch().tobytes()).hexdigest()[:16] for value in seen}
    digests.add(hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16])
    print(f"chief ends at step {STEPS} with parameters {' '.join(sorted(digests))}", flush=True)


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        coordinate(resolver)
    else:
        serve(resolver)


main()
