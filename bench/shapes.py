"""One training with torchrun in both shapes, 4 processes in one pod and 4 pods with one: seconds for each step.

python bench/shapes.py

The same script, model and batches. The pods share this machine, so what differs is how their processes talk: gloo over
the loopback of one pod, or over the network between pods.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import Any

import grounds

PROCESSES = 4
ROUNDS = 3
CPUS = 1.0
"""What all pods of a run ask for together, whatever their number."""
SHAPES = {
    "one pod of 4": {"procs": 4},
    "2 pods of 2": {"nodes": 2, "procs": 2},
    "4 pods of one": {"nodes": 4, "procs": 1},
}
SCRIPT = """
import json, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [torch.nn.Linear(512, 512) for _ in range(4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(32, 512)
times = []
for step in range(60):
    began = time.perf_counter()
    loss = (model(batch) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    times.append(time.perf_counter() - began)
if dist.get_rank() == 0:
    times = sorted(times[10:])
    seen = {"size": dist.get_world_size(), "step_s": times[len(times) // 2], "loss": float(loss)}
    print(json.dumps(seen), flush=True)
del model, optimizer, loss
dist.destroy_process_group()
"""


def measure() -> dict[str, float]:
    with grounds.cluster("bench-shapes", "--profile", "pods") as ground:
        ground.load_image("torch")
        ground.set(image="longboat.test/torch:latest")
        project = ground.folder / "shapes"
        project.mkdir()
        (project / "train.py").write_text(SCRIPT)
        taken: dict[str, list[float]] = {name: [] for name in SHAPES}
        losses = set()
        for _ in range(ROUNDS):
            for name, shape in SHAPES.items():
                seen = train(ground, shape)
                taken[name].append(seen["step_s"])
                losses.add(seen["loss"])
    if len(losses) > 1:
        raise SystemExit(f"the shapes do not train alike: {sorted(losses)}")
    medians = {name: statistics.median(values) for name, values in taken.items()}
    one_pod_s = medians["one pod of 4"]
    return {
        **{f"{PROCESSES} processes: {name}/step, ms": value * 1000 for name, value in medians.items()},
        **{f"{PROCESSES} processes: {name}/against one pod": value / one_pod_s for name, value in medians.items()},
    }


def train(ground: grounds.Ground, shape: dict[str, int]) -> dict[str, Any]:
    project = ground.folder / "shapes"
    job = {
        "name": "shape",
        "run": "torchrun train.py",
        "env": {"OMP_NUM_THREADS": "1"},
        "cpus": CPUS / shape.get("nodes", 1),
        **shape,
    }
    (project / "job.yaml").write_text(json.dumps(job))
    done = subprocess.run(
        [grounds.longboat(), "run", "-q", "job.yaml"],
        cwd=project,
        env=ground.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    result_line = next((line[line.index("{") :] for line in done.stdout.splitlines() if "step_s" in line), None)
    if done.returncode or result_line is None:
        raise SystemExit(f"{shape} failed with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    seen: dict[str, Any] = json.loads(result_line)
    if seen["size"] != PROCESSES:
        raise SystemExit(f"{shape}: {seen['size']} processes instead of {PROCESSES}")
    return seen


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:50} {value:10.3f}")
