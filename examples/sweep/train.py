"""Fits a small neural network to a wave, with nothing but the standard library: one trial of a sweep.

Runs alone too: `python train.py --lr 0.1 --width 8`.
"""

from __future__ import annotations

import argparse
import math
import random

try:
    import longboat  # there in every rank of a run; nothing has to be installed
except ImportError:
    longboat = None

STEPS = 60


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=8)
    args = parser.parse_args()

    rng = random.Random(0)
    points = [(x / 10.0, math.sin(x / 4.0)) for x in range(-12, 13)]
    weights = [[rng.uniform(-2, 2), rng.uniform(-1, 1), rng.uniform(-1, 1) / args.width] for _ in range(args.width)]
    for step in range(1, STEPS + 1):
        loss = 0.0
        for x, y in points:
            hidden = [math.tanh(a * x + b) for a, b, _ in weights]
            error = sum(h * unit[2] for h, unit in zip(hidden, weights)) - y
            loss += error * error / len(points)
            for h, unit in zip(hidden, weights):
                back = args.lr * error
                slope = back * unit[2] * (1 - h * h)
                unit[0] -= slope * x
                unit[1] -= slope
                unit[2] -= back * h
        if longboat:
            longboat.step(step, loss=loss)
    print(f"loss: {loss:.4f}")


if __name__ == "__main__":
    main()
