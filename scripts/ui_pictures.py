"""The pictures of docs/ui.md: `longboat ui` over this machine and a cluster of simulated nodes, seen by a real browser.

python scripts/ui_pictures.py [FOLDER]   writes ui-PAGE.png; with WIDTHS=1440,900,390 also ui-PAGE-WIDTH.png, to look at

Runs of this machine are real; nodes of the cluster, their pods and the machines that its autoscaler buys are simulated
(testbed/, KWOK). The steps of the cluster that is being set up are an example: there are no such hosts. Not part of the
tests: what a page does is tested, how it looks is for people to judge.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import msgspec  # noqa: E402

import grounds  # noqa: E402
import services  # noqa: E402
from longboat.clusters.apply.step_log import STEPS_FILE, StepEvent  # noqa: E402
from longboat.clusters.cluster_file import read_cluster  # noqa: E402
from longboat.clusters.spec_store import save_spec  # noqa: E402
from longboat.engines.kubernetes.install.autoscaler_manifests import POOLS  # noqa: E402
from longboat.engines.shared.home import Home  # noqa: E402
from longboat.kubeapi import kubeconfig  # noqa: E402
from tests.web.browser import open_page, opened_browser  # noqa: E402
from tests.web.ui_process import Dashboard  # noqa: E402

TRAINER = """
import math, random, sys, time
import longboat
rate = float(longboat.params().get("lr", sys.argv[1] if len(sys.argv) > 1 else 0.1))
steps, pause = (int(sys.argv[2]), float(sys.argv[3])) if len(sys.argv) > 3 else (120, 0.02)
for step in range(steps):
    loss = 2.3 * math.exp(-rate * step / 4) + 0.2 + abs(math.log10(rate) + 1) / 8 + random.random() / 20
    longboat.step(step, loss=loss, accuracy=1 - loss / 3)
    if step % 5 == 0:
        print(f"step {step} loss {loss:.4f} accuracy {1 - loss / 3:.3f}", flush=True)
    time.sleep(pause)
"""
BROKEN = TRAINER + '\nraise FloatingPointError("the loss is NaN")\n'
RECOVERS = """
import math, os, random, time
import longboat
rank, retried = int(os.environ["RANK"]), os.environ["LONGBOAT_ATTEMPT"] != "0"
for step in range(150 if retried else 0, 100000):
    loss = 2.3 * math.exp(-step / 90) + 0.2 + random.random() / 14
    longboat.step(step, loss=loss, accuracy=1 - loss / 3)
    if step % 5 == 0:
        print(f"step {step} loss {loss:.4f} accuracy {1 - loss / 3:.3f}", flush=True)
    if not retried and step == 210 and rank == 2:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    time.sleep(0.18 if rank == 3 else 0.12)
"""
SEARCHED = """
import math, random, time
import longboat
given = longboat.params()
final = 0.25 + (math.log10(given["lr"]) + 1.6) ** 2 / 3 + 3 / given["width"] + (given["dropout"] - 0.15) ** 2
for step in range(60):
    longboat.step(step, loss=final + 2 * math.exp(-step / 12) + random.random() / 40)
    time.sleep(0.05)
"""
STEPS = (("reach", 0.4), ("packages", 21.5), ("containerd", 9.1), ("driver", 64.0), ("kubelet", 6.2), ("join", 11.0))
DONE = (6, 5, 4, 3, 3, 2)
"""So many steps of each host of the example are done."""
CLUSTER_RUNS = (("llm-7b-pretrain", 4, 3600), ("vit-large", 2, 3600), ("bert-finetune", 1, 3600), ("eval-suite", 1, 20))
WAITING = (("llm-70b", 8), ("clip-big", 6))
PRICE = 32.77  # of a machine and an hour: an example
PLACE = "lab"
SERVED = ROOT / "examples" / "train-and-serve" / "job.yaml"
PAGES = {
    "runs": "runs",
    "gpus": "gpus",
    "run": "run/local/llama-sft",
    "sweep": "sweep/local/vit-lr",
    "autoscaler": "autoscaler",
    "compare": "compare?run=local/resnet-small&run=local/resnet-large",
    "services": "services",
    "clusters": "clusters",
}
SETTLED = "() => document.querySelector('main h1') && !document.querySelector('main [aria-busy=true]')"


def main(folder: Path) -> None:
    widths = [int(width) for width in os.environ.get("WIDTHS", "").split(",") if width]
    with ExitStack() as stack:
        ground = stack.enter_context(grounds.cluster("ui-pictures", "--nodes", "1:cpu"))
        ground.environment.update(KUBECONFIG=str(named_config(ground)), LOGNAME="ines")
        stack.enter_context(running_services(ground))
        dashboard = Dashboard(ground.folder / "here", "--on", PLACE)
        dashboard.environment |= {**ground.environment, "LONGBOAT_GPUS": "0,1,2,3"}
        dashboard.environment["LONGBOAT_HOME"] = str(ground.folder / "here" / "home")
        stack.callback(remove_runs, dashboard)
        submit(dashboard, "config", "set", "kubernetes.gpu_hour", f"{PRICE / 8:.2f}")
        dashboard.start()
        stack.callback(dashboard.stop)
        browser = stack.enter_context(opened_browser())
        looking = browser.new_page()  # demand and capacity are noted while somebody looks
        looking.goto(f"{dashboard.address}#/autoscaler")
        for name, nodes, run_s in CLUSTER_RUNS:
            hand_over(ground, name, nodes, run_s)
            time.sleep(25)
        for name, nodes in WAITING:
            hand_over(ground, name, nodes, 3600)
        local_runs(dashboard)
        set_up_example(Path(dashboard.environment["LONGBOAT_HOME"]))
        looking.close()
        take(browser, dashboard.address, folder, widths)


def named_config(ground: grounds.Ground) -> Path:
    """The kubeconfig with a name that people would give the cluster."""
    path = ground.folder / "kubeconfig"
    path.write_bytes(Path(ground.environment["KUBECONFIG"]).read_bytes())
    context = kubeconfig.find(None, None, {"KUBECONFIG": str(path)}).context
    command = [grounds.kubectl(), "--kubeconfig", str(path), "config", "rename-context", context, PLACE]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


@contextmanager
def running_services(ground: grounds.Ground) -> Iterator[None]:
    """The controller and the autoscaler, where `longboat install` has them."""
    priced = [{**pool, "price": PRICE} for pool in services.POOLS["pools"]]
    (ground.folder / "pools.yaml").write_text(json.dumps({**services.POOLS, "pools": priced}))
    (ground.folder / "train.py").write_text("print('hello')\n")
    subprocess.run([grounds.kubectl(), "create", "namespace", services.SYSTEM], env=ground.environment, check=True)
    pools = ["create", "configmap", POOLS, f"--from-file={ground.folder / 'pools.yaml'}"]
    command = [grounds.kubectl(), "--namespace", services.SYSTEM, *pools]
    subprocess.run(command, env=ground.environment, check=True, stdout=subprocess.DEVNULL)
    commands = (["autoscaler", "run", "--pools", "pools.yaml"], ["controller", "--lease", services.SYSTEM])
    running = []
    try:
        for words in commands:
            with open(ground.folder / f"{words[0]}.log", "wb") as log:
                command = [grounds.longboat(), *words]
                started = subprocess.Popen(command, env=ground.environment, cwd=ground.folder, stdout=log, stderr=log)
            running.append(started)
        time.sleep(10)
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
            process.wait()


def hand_over(ground: grounds.Ground, name: str, nodes: int, run_s: int) -> None:
    annotations = {services.PREFIX + "run-for": f"{run_s}s", services.PREFIX + "exit-code": "0"}
    pod = {"metadata": {"annotations": annotations}, "spec": {"nodeSelector": {"longboat.dev/pool": "gpu"}}}
    ground.set(image=grounds.PYTHON_IMAGE, pod=pod, storage={"path": "/srv/runs"}, allow_host_paths=True)
    words = ["run", "-d", "--id", name, "--nodes", str(nodes), "--gpus", "8", "--label", "team=vision", "train.py"]
    command = [grounds.longboat(), *words]
    subprocess.run(command, env=ground.environment, cwd=ground.folder, check=True, capture_output=True)


def local_runs(dashboard: Dashboard) -> None:
    here = ("--engine", "local")
    (dashboard.folder / "train.py").write_text(TRAINER)
    for name, rate in (("resnet-small", "0.1"), ("resnet-large", "0.02")):
        submit(dashboard, "run", "-d", "--id", name, *here, "--label", "team=vision", "train.py", rate, "120", "0.02")
    dashboard.run("diverges", BROKEN, *here)
    dashboard.run("llama-sft", RECOVERS, *here, "--procs", "4", "--retries", "2", "--label", "team=nlp")
    (dashboard.folder / "vit.py").write_text(SEARCHED)
    space = ("-p", "lr=1e-3..0.5:log", "-p", "width=[32, 64, 128, 256]", "-p", "dropout=0..0.5")
    how = ("--method", "asha", "--trials", "27", "--parallel", "3", "--metric", "loss")
    submit(dashboard, "sweep", "-d", "-n", "vit-lr", *here, *how, *space, "vit.py")
    submit(dashboard, "shell", "-d", *here)
    submit(dashboard, "run", "-q", *here, "--id", "digits-app", str(SERVED))
    submit(dashboard, "serve", str(SERVED), "-d", "--wait", *here)
    submit(dashboard, "run", "-d", "--id", "resnet", *here, "--gpus", "2", "train.py", "0.05", "100000", "0.1")
    submit(dashboard, "run", "-d", "--id", "needs-four", *here, "--gpus", "4", "train.py")
    submit(dashboard, "run", "-d", "--id", "detector", *here, "--gpus", "1", "train.py", "0.01", "100000", "0.2")
    time.sleep(40)  # curves have a shape


def set_up_example(home: Path) -> None:
    """A cluster of six hosts in the middle of its set-up, one of them in trouble."""
    file = home / "example.yaml"
    hosts = (f"- {{address: 10.0.0.{11 + number}, name: gpu-0{number + 1}}}" for number in range(len(DONE)))
    file.write_text("\n".join(("name: training", "hosts:", *hosts)) + "\n")
    spec = read_cluster(file)
    save_spec(spec, Home(home))
    events = []
    for host, done in zip(spec.hosts, DONE):
        ended = [StepEvent(host=host.name, step=name, state="done", seconds=took) for name, took in STEPS[:done]]
        events += ended + [StepEvent(host=host.name, step=name, state="started") for name, _ in STEPS[done : done + 1]]
    failed = StepEvent(
        host=spec.hosts[4].name, step="driver", state="failed", text="no GPU of NVIDIA: lspci shows none"
    )
    log = home / "clusters" / f"{spec.name}.logs" / STEPS_FILE
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in (*events, failed)))


def submit(dashboard: Dashboard, *words: str) -> None:
    done = dashboard.longboat(*words)
    if done.returncode:
        print(f"longboat {' '.join(words)}: {done.stderr}", file=sys.stderr)


def remove_runs(dashboard: Dashboard) -> None:
    dashboard.longboat("serve", "stop", "digits-app", "--engine", "local")
    for row in json.loads(dashboard.longboat("ps", "-a", "-o", "json", "--engine", "local").stdout or "[]"):
        dashboard.longboat("rm", row["name"], "--force", "--yes", "--engine", "local")


def take(browser: Any, address: str, folder: Path, widths: list[int]) -> None:
    for width in (0, *widths):
        context = browser.new_context(viewport={"width": width or 1280, "height": 800 if width != 390 else 844})
        page = context.new_page()
        page.goto(address)
        for name, path in PAGES.items():
            open_page(page, path)
            page.wait_for_timeout(2500)
            deadline = time.monotonic() + 60
            while not page.evaluate(SETTLED) and time.monotonic() < deadline:
                page.wait_for_timeout(200)
            page.screenshot(path=folder / (f"ui-{name}-{width}.png" if width else f"ui-{name}.png"))
        context.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
