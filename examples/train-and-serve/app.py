"""One program that trains and serves: `--train` learns to read handwritten digits and exits; without it, it serves.

    python app.py --train         trains, prints the accuracy, saves a checkpoint
    python app.py --port 8080     restores the checkpoint, answers GET / and POST /predict

Needs numpy only; where there is PyTorch with a GPU, it computes there. In a run of Longboat checkpoints go where the
job says (a folder, an object store), and a service gets the one it serves restored before it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch

    on_gpu = torch.cuda.is_available()
except ImportError:
    on_gpu = False
xp: Any = torch if on_gpu else np  # what is used of the two is spelled alike

try:
    import longboat  # there in every run and service; nothing has to be installed
except ImportError:
    longboat = None

HIDDEN, CLASSES, HELD_OUT, BATCH = 32, 10, 360, 64
FOLDER = Path("checkpoints") / "latest"  # outside of Longboat


def to_device(values: np.ndarray) -> Any:
    return torch.from_numpy(np.ascontiguousarray(values)).cuda() if on_gpu else values


def to_host(values: Any) -> np.ndarray:
    return values.cpu().numpy() if on_gpu else values


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    with np.load(Path(__file__).with_name("digits.npz")) as data:
        images, labels = data["images"] / 16.0, data["labels"].astype(int)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].reshape(len(labels), -1), labels[order]
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


class Model:
    def __init__(self, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray) -> None:
        self.parameters = [to_device(values) for values in (w1, b1, w2, b2)]

    @classmethod
    def new(cls) -> Model:
        rng = np.random.default_rng(1)
        w1, w2 = rng.normal(0, 0.125, (64, HIDDEN)), rng.normal(0, 0.2, (HIDDEN, CLASSES))
        return cls(w1, np.zeros(HIDDEN), w2, np.zeros(CLASSES))

    def forward(self, images: Any) -> tuple[Any, Any]:
        w1, b1, w2, b2 = self.parameters
        hidden = xp.tanh(images @ w1 + b1)
        scores = hidden @ w2 + b2
        odds = xp.exp(scores - xp.amax(scores, axis=1, keepdims=True))
        return hidden, odds / xp.sum(odds, axis=1, keepdims=True)

    def learn(self, images: np.ndarray, labels: np.ndarray, rate: float) -> float:
        images, right = to_device(images), to_device(np.eye(CLASSES)[labels])
        hidden, chances = self.forward(images)
        loss = float(-xp.log(xp.sum(chances * right, axis=1) + 1e-12).mean())
        error = (chances - right) / len(labels)
        back = (error @ self.parameters[2].T) * (1 - hidden**2)
        gradients = (images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))
        for parameter, gradient in zip(self.parameters, gradients):
            parameter -= rate * gradient
        return loss

    def accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        return float((self.chances(images).argmax(axis=1) == labels).mean())

    def chances(self, images: np.ndarray) -> np.ndarray:
        return to_host(self.forward(to_device(images))[1])

    def save(self, folder: Path, accuracy: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "model.npz", *map(to_host, self.parameters))
        (folder / "about.json").write_text(json.dumps({"accuracy": accuracy}))

    @classmethod
    def restore(cls, folder: Path) -> tuple[Model, float]:
        with np.load(folder / "model.npz") as data:
            parameters = [data[name] for name in data.files]
        return cls(*parameters), float(json.loads((folder / "about.json").read_text())["accuracy"])


def answer(model: Model, pixels: list[float]) -> dict[str, object]:
    """What POST /predict answers to an image of 8 x 8 pixels from 0 to 16."""
    image = np.asarray(pixels, dtype=float).reshape(1, 64) / 16.0
    chances = model.chances(image)[0]
    return {"digit": int(chances.argmax()), "probabilities": [round(float(chance), 6) for chance in chances]}


def train(epochs: int) -> None:
    images, labels, held_images, held_labels = load()
    model, rng, step = Model.new(), np.random.default_rng(2), 0
    for _ in range(epochs):
        order = rng.permutation(len(labels))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            loss = model.learn(images[batch], labels[batch], rate=0.5)
            step += 1
            if longboat:
                longboat.step(step, loss=loss)
    accuracy = model.accuracy(held_images, held_labels)
    save(model, accuracy, step, held_images)
    print(f"accuracy {accuracy:.4f}", flush=True)


def save(model: Model, accuracy: float, step: int, held_images: np.ndarray) -> None:
    if longboat is None:
        model.save(FOLDER, accuracy)
        return
    inputs = [(image * 16).tolist() for image in held_images[:5]]
    with longboat.checkpoint(step) as folder:
        model.save(Path(folder), accuracy)
        longboat.golden(inputs, [answer(model, pixels) for pixels in inputs], tolerance=1e-3)


def restored() -> tuple[Model, float]:
    folder = (longboat.resume_from() if longboat else None) or FOLDER
    if not (Path(folder) / "model.npz").exists():
        sys.exit(f"no checkpoint in {folder}: python app.py --train makes one")
    return Model.restore(Path(folder))


def serve(host: str, port: int) -> None:
    model, accuracy = restored()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path != "/":
                self.reply(404, {"error": "GET / or POST /predict"})
                return
            self.reply(200, {"model": "digits", "accuracy": accuracy})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/predict":
                self.reply(404, {"error": "GET / or POST /predict"})
                return
            try:
                self.reply(200, answer(model, json.loads(body)))
            except (ValueError, TypeError):
                self.reply(400, {"error": "expected 64 numbers from 0 to 16, as JSON"})

        def reply(self, status: int, value: dict[str, object]) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Probes would fill the log."""

    print(f"serves on {host}:{port}, accuracy {accuracy:.4f}", flush=True)
    ThreadingHTTPServer((host, port), Handler).serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true", help="train, save a checkpoint and exit")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--host", default=os.environ.get("HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8080")))
    options = parser.parse_args()
    if on_gpu:
        print(f"computes on {torch.cuda.get_device_name()}", flush=True)
    if options.train:
        train(options.epochs)
    else:
        serve(options.host, options.port)


if __name__ == "__main__":
    main()
