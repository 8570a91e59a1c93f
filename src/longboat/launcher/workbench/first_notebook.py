"""The first notebook: lists the devices and trains a step. Written where a folder has no notebook yet."""

from __future__ import annotations

import os

from ..node.jsonfiles import dumps

NAME = "first-steps.ipynb"

TEXT = """\
# First steps
The first cell lists the devices of this notebook, the second trains one step on the best of them."""
DEVICES = """\
import shutil, subprocess

if shutil.which("nvidia-smi"):
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
try:
    import torch
    devices = ["cpu"] + [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
except ImportError:
    try:
        import jax
        devices = [str(device) for device in jax.devices()]
    except ImportError:
        devices = ["cpu (neither torch nor jax is installed)"]
devices"""
STEP = """\
try:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 4, device=device)
    y = x.sum(dim=1, keepdim=True)
    before = torch.nn.functional.mse_loss(model(x), y)
    before.backward()
    optimizer.step()
    after = torch.nn.functional.mse_loss(model(x), y).item()
    before = before.item()
except ImportError:  # the same step by hand
    import random

    random.seed(0)
    data = [[random.gauss(0, 1) for _ in range(4)] for _ in range(64)]
    weights = [0.0] * 4
    loss = lambda w: sum((sum(a * b for a, b in zip(w, row)) - sum(row)) ** 2 for row in data) / len(data)
    before = loss(weights)
    for i in range(4):
        slope = sum(2 * (sum(a * b for a, b in zip(weights, row)) - sum(row)) * row[i] for row in data) / len(data)
        weights[i] -= 0.1 * slope
    after = loss(weights)
assert after < before
print(f"loss {before:.3f} -> {after:.3f}")"""


def provide(folder: str) -> str:
    """The notebook to open first; empty: the folder has some of its own, or cannot be written to."""
    try:
        if any(name.endswith(".ipynb") and name != NAME for name in os.listdir(folder)):
            return ""
        with open(os.path.join(folder, NAME), "x", encoding="utf-8") as file:
            file.write(dumps(notebook()) + "\n")
    except FileExistsError:
        pass
    except OSError:
        return ""
    return NAME


def notebook() -> dict[str, object]:
    cells: list[dict[str, object]] = [{"cell_type": "markdown", "id": "about", "metadata": {}, "source": TEXT}]
    for name, source in (("devices", DEVICES), ("step", STEP)):
        cells.append(
            {"cell_type": "code", "id": name, "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        )
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
