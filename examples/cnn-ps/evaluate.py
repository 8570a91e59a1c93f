"""Judges every checkpoint of the run as it is written, on images that the training never saw. Needs numpy only."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from network import SHAPES, digits, scores

import longboat


def main() -> None:
    parser = argparse.ArgumentParser(description="Judges the checkpoints of a run.")
    parser.add_argument("--data", required=True, help="folder with digits.npz")
    _, _, images, labels = digits(parser.parse_args().data)
    count = 0
    for step, folder in longboat.new_checkpoints():
        with np.load(Path(folder) / "model.npz") as state:
            answers = scores({name: state[name] for name in SHAPES}, images).argmax(axis=1)
        accuracy = float((answers == labels).mean())
        longboat.evaluated(step, accuracy=accuracy)
        count += 1
        print(f"step {step}: accuracy {accuracy:.3f}", flush=True)
    print(f"evaluated {count} checkpoints", flush=True)


main()
