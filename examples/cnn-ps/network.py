"""The network's shape, its data, and what it answers: numpy only, so that evaluating needs no TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HELD_OUT = 360
SHAPES = {
    "first": (3, 3, 1, 8),
    "first_bias": (8,),
    "second": (3, 3, 8, 16),
    "second_bias": (16,),
    "last": (64, 10),
    "last_bias": (10,),
}


def digits(folder: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to learn from, and those held out; the same in every task."""
    with np.load(Path(folder) / "digits.npz") as data:
        images, labels = data["images"].reshape(-1, 8, 8, 1) / 16.0, data["labels"].astype(int)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype(np.float32), labels[order]
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def scores(parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    hidden = images
    for layer in ("first", "second"):
        hidden = pooled(np.maximum(convolved(hidden, parameters[layer]) + parameters[f"{layer}_bias"], 0))
    return hidden.reshape(len(images), -1) @ parameters["last"] + parameters["last_bias"]


def convolved(images: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, kernel, optimize=True)


def pooled(images: np.ndarray) -> np.ndarray:
    count, height, width, channels = images.shape
    return images.reshape(count, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))
