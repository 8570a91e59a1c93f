"""Trains a small convolutional network on handwritten digits with parameter servers, asynchronously.

The same program is every task: a parameter server holds variables and waits; each worker takes its own batches and
applies its own gradients to them. TF_CONFIG says who is who. Worker 0 writes checkpoints and TensorBoard's events.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf
from network import SHAPES, digits

import longboat

BATCH = 64
LOOK_S = 0.1


class Graph:
    """Variables on the parameter servers, and one worker's operations on them."""

    def __init__(self, resolver: tf.distribute.cluster_resolver.ClusterResolver, rate: float) -> None:
        worker = f"/job:worker/task:{resolver.task_id}"
        with tf.device(tf.train.replica_device_setter(cluster=resolver.cluster_spec(), worker_device=worker)):
            self.step = tf.train.get_or_create_global_step()
            self.parameters = {
                name: tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer(seed=number))
                for number, (name, shape) in enumerate(SHAPES.items())
            }
            self.ready = tf.get_variable("ready", (), initializer=tf.ones_initializer(), trainable=False)
            self.images = tf.placeholder(tf.float32, (None, 8, 8, 1))
            self.labels = tf.placeholder(tf.int64, (None,))
            self.loss = tf.losses.sparse_softmax_cross_entropy(self.labels, self._scores())
            optimizer = tf.train.AdamOptimizer(rate)
            self.train = optimizer.minimize(self.loss, global_step=self.step)
        self.is_ready = tf.is_variable_initialized(self.ready)
        self.given = {name: tf.placeholder(tf.float32, shape) for name, shape in SHAPES.items()}
        self.set_step = self.step.assign(tf.placeholder_with_default(tf.constant(0, tf.int64), (), "given_step"))
        self.restore = [variable.assign(self.given[name]) for name, variable in self.parameters.items()]
        self.initialize = tf.variables_initializer([each for each in tf.global_variables() if each is not self.ready])

    def _scores(self) -> tf.Tensor:
        hidden = self.images
        for layer in ("first", "second"):
            weights, bias = self.parameters[layer], self.parameters[f"{layer}_bias"]
            hidden = tf.nn.relu(tf.nn.conv2d(hidden, weights, strides=1, padding="SAME") + bias)
            hidden = tf.nn.max_pool2d(hidden, 2, 2, "VALID")
        flat = tf.reshape(hidden, (-1, SHAPES["last"][0]))
        return flat @ self.parameters["last"] + self.parameters["last_bias"]

    def start(self, session: tf.Session, is_chief: bool) -> None:
        """Worker 0 sets the variables: fresh, or those of the newest checkpoint. The others wait for it."""
        if is_chief:
            session.run(self.initialize)
            folder = longboat.resume_from()
            if folder:
                self._load(session, Path(folder) / "model.npz")
            session.run(self.ready.initializer)
        while not session.run(self.is_ready):
            time.sleep(LOOK_S)

    def _load(self, session: tf.Session, path: Path) -> None:
        with np.load(path) as state:
            session.run(self.restore, {self.given[name]: state[name] for name in SHAPES})
            session.run(self.set_step, {"given_step:0": int(state["step"])})
            print(f"resumed at step {int(state['step'])}", flush=True)

    def save(self, session: tf.Session, step: int) -> None:
        """Of worker 0: the parameters as they are on the servers this moment."""
        with longboat.checkpoint(step) as folder:
            np.savez(Path(folder) / "model.npz", step=step, **session.run(self.parameters))


def work(server: tf.train.Server, graph: Graph, task: int, options: argparse.Namespace) -> int:
    """Train until all workers together have made the steps; how many were made here."""
    images, labels, _, _ = digits(options.data)
    random = np.random.default_rng(task)
    writer = tf.summary.FileWriter(os.environ["LONGBOAT_ARTIFACTS_DIR"]) if task == 0 else None
    own, saved = 0, 0
    with tf.Session(server.target, config=filters("worker", task)) as session:
        graph.start(session, is_chief=task == 0)
        step = int(session.run(graph.step))
        while step < options.steps and not longboat.should_stop():
            batch = random.integers(0, len(labels), BATCH)
            feed = {graph.images: images[batch], graph.labels: labels[batch]}
            _, loss, step = session.run([graph.train, graph.loss, graph.step], feed)
            own += 1
            longboat.step(int(step), loss=float(loss))
            if writer:
                value = tf.Summary.Value(tag="loss", simple_value=float(loss))
                writer.add_summary(tf.Summary(value=[value]), int(step))
            if task == 0 and saved + options.every <= step < options.steps:
                saved = int(step)
                graph.save(session, saved)
        if task == 0 and not longboat.should_stop():
            graph.save(session, options.steps)
    if writer:
        writer.close()
    return own


def filters(job: str, task: int) -> tf.ConfigProto:
    """A worker meets the parameter servers alone: it does not wait for other workers, nor fail with them."""
    return tf.ConfigProto(device_filters=["/job:ps", f"/job:{job}/task:{task}"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a convolutional network with parameter servers.")
    parser.add_argument("--data", required=True, help="folder with digits.npz")
    parser.add_argument("--steps", type=int, default=300, help="of all workers together")
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--rate", type=float, default=0.003)
    options = parser.parse_args()
    tf.disable_eager_execution()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    job, task = resolver.task_type, resolver.task_id
    server = tf.train.Server(resolver.cluster_spec(), job_name=job, task_index=task, config=filters(job, task))
    if job == "ps":
        server.join()
    own = work(server, Graph(resolver, options.rate), task, options)
    print(f"worker {task} of {len(resolver.cluster_spec().job_tasks('worker'))}: {own} steps", flush=True)


main()
