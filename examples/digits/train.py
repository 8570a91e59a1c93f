"""Trains a small neural network on handwritten digits, on as many processes as there are.

Every process works on its own share of each batch and the gradients are averaged (allreduce.py). It runs under plain
`python train.py` too: then it is a training on one process. Needs numpy only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

import numpy as np
from allreduce import AllReduce
from events import EventWriter

try:
    import longboat  # there in every rank of a run; nothing has to be installed
except ImportError:
    longboat = None

HIDDEN, CLASSES, HELD_OUT = 64, 10, 360
SHAPES = ((64, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
SIZES = [int(np.prod(shape)) for shape in SHAPES]


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to learn from, and those held out. The order is fixed, so all ranks agree."""
    with np.load(Path(__file__).with_name("digits.npz")) as data:
        images, labels = data["images"] / 16.0, data["labels"].astype(int)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order], labels[order]
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def initial() -> np.ndarray:
    rng = np.random.default_rng(1)
    w1, b1, w2, b2 = (rng.normal(0, shape[0] ** -0.5, shape) for shape in SHAPES)
    return np.concatenate([w1.ravel(), 0 * b1, w2.ravel(), 0 * b2])


def layers(parameters: np.ndarray) -> list[np.ndarray]:
    return [part.reshape(shape) for part, shape in zip(np.split(parameters, np.cumsum(SIZES)[:-1]), SHAPES)]


def forward(parameters: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w1, b1, w2, b2 = layers(parameters)
    hidden = np.maximum(images @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def loss_and_gradient(parameters: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    hidden, probabilities = forward(parameters, images)
    rows = np.arange(len(labels))
    loss = float(-np.log(probabilities[rows, labels] + 1e-12).mean())
    error = probabilities
    error[rows, labels] -= 1
    error /= len(labels)
    back = (error @ layers(parameters)[2].T) * (hidden > 0)
    parts = (images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))
    return loss, np.concatenate([part.ravel() for part in parts])


def accuracy(parameters: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    return float((forward(parameters, images)[1].argmax(axis=1) == labels).mean())


def resume() -> tuple[int, np.ndarray, np.ndarray]:
    """Epochs done, parameters and momentum: those of the newest checkpoint, if this is not a fresh start."""
    folder = longboat.resume_from() if longboat else None
    if not folder:
        return 0, initial(), np.zeros(sum(SIZES))
    with np.load(Path(folder) / "state.npz") as state:
        print(f"resumed after epoch {int(state['epoch'])}", flush=True)
        return int(state["epoch"]), state["parameters"], state["momentum"]


def save(epoch: int, parameters: np.ndarray, momentum: np.ndarray) -> None:
    if longboat:
        with longboat.checkpoint(epoch) as folder:
            np.savez(Path(folder) / "state.npz", epoch=epoch, parameters=parameters, momentum=momentum)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small neural network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="images per step, over all processes")
    epochs, batch = vars(parser.parse_args()).values()
    rate = float(os.environ.get("LR", "0.1"))

    group = AllReduce.from_environment()
    images, labels, held_images, held_labels = load()
    done, parameters, momentum = resume()
    writer = EventWriter(os.environ.get("LONGBOAT_ARTIFACTS_DIR") or "runs") if group.rank == 0 else None

    for epoch in range(done + 1, epochs + 1):
        order = np.random.default_rng(epoch).permutation(len(labels))
        losses = []
        for start in range(0, len(order), batch):
            mine = order[start : start + batch][group.rank :: group.world]
            loss, gradient = loss_and_gradient(parameters, images[mine], labels[mine])
            averaged = group.mean(np.append(gradient, loss))
            momentum = 0.9 * momentum + averaged[:-1]
            parameters = parameters - rate * momentum
            losses.append(averaged[-1])
        if group.rank == 0:
            held_out = accuracy(parameters, held_images, held_labels)
            print(f"epoch {epoch}/{epochs}: loss {np.mean(losses):.4f}, held-out accuracy {held_out:.3f}", flush=True)
            writer.scalars(epoch, loss=float(np.mean(losses)), accuracy=held_out)
            save(epoch, parameters, momentum)
        if longboat:
            longboat.step(epoch, loss=float(np.mean(losses)))

    # All ranks took the same steps from the same start: their parameters are the same to the last bit.
    digest = np.frombuffer(hashlib.sha256(parameters.tobytes()).digest(), dtype=np.uint8).astype(float)
    assert (group.mean(digest) == digest).all(), "the ranks disagree on the parameters"
    print(f"rank {group.rank} of {group.world}: parameters agree", flush=True)
    if group.rank == 0:
        print(f"accuracy: {accuracy(parameters, held_images, held_labels):.3f}", flush=True)
    group.close()


if __name__ == "__main__":
    main()
