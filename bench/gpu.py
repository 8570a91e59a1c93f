"""The same training bare, through the embedded engine and through Kubernetes, on a machine with a GPU; writes gpu.json.

    python3 bench/gpu.py longboat-cluster.tar.xz [--rounds 3] [--steps 200] [-o bench/gpu.json] [PART...]

Needs root, a Python with torch, Longboat's dependencies, and the archive that `python -m testbed pack` writes (its
cluster shows the machine's GPUs as nvidia.com/gpu and runs the machine's own Python in pods); `-` for parts that need
no cluster (starts, isolation). Everything in one command; a part that fails is noted with its output and the others go
on. The exit code is 1 if any part failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "gpu_scripts"
sys.path.insert(0, str(HERE.parent / "src"))
LONGBOAT = [sys.executable, "-c", "from longboat.cli.main import main; main()"]
PLACES = {"embedded": [], "kubernetes": ["--on", "gpu"]}
WITHOUT = {"embedded": [], "kubernetes": ["--on", "plain"]}
"""Where runs without GPUs go: in the cluster they are pods without any privilege."""
LIMIT_S = 300.0
STARTS = 9
PLUGIN = "plugin"
"""The cluster whose GPUs NVIDIA's device plugin hands out, and its context."""
ALONE = ("starts", "isolation")
"""Parts without a cluster."""
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
PRODUCT = (
    "import torch; a = torch.ones(4096, 4096, device='cuda', dtype=torch.bfloat16); "
    "print(torch.cuda.get_device_name(0), float((a @ a)[0, 0]))"
)


class Bench:
    def __init__(self, folder: Path, steps: int, rounds: int) -> None:
        self.folder = folder
        self.steps = steps
        self.rounds = rounds
        self.prefix: list[str] = []  # in front of every command: as whom it runs
        self.start = [sys.executable, str(folder / "longboat-cluster" / "start")]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])),
            "LONGBOAT_HOME": str(folder / "home"),
            "LONGBOAT_TESTBED_STATE": str(folder / "state"),
            "KUBECONFIG": str(folder / "kubeconfig"),
        }
        # Without its bytecode, which an installation has, every command would compile Longboat anew.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def call(self, command: list[str], *, code: int | None = 0, limit_s: float = LIMIT_S) -> str:
        done = subprocess.run(
            [*self.prefix, *command],
            env=self.environment,
            cwd=SCRIPTS,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if code is not None and done.returncode != code:
            raise RuntimeError(
                f"{command[-6:]}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
        return done.stdout

    def longboat(self, *words: str, code: int | None = 0) -> str:
        return self.call([*LONGBOAT, *words], code=code)

    # the cluster

    def up(self, archive: Path) -> dict[str, Any]:
        began = time.monotonic()
        with tarfile.open(archive) as tar:
            tar.extractall(self.folder, filter="fully_trusted")
        unpacked = time.monotonic()
        self.call([*self.start, "up"])
        took = {"unpack_s": unpacked - began, "up_s": time.monotonic() - unpacked}
        self.settings()
        return took

    def settings(self) -> None:
        """Two contexts of one cluster: for GPU runs pods may use the machine's devices, for others they may not."""
        manifest = json.loads(self.call([*self.start, "manifest", "--", "true"]))
        spec = manifest["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        base = {
            "hostNetwork": True,
            "volumes": spec["volumes"],
            "containers": [
                {"name": "main", "env": container.get("env", []), "volumeMounts": container["volumeMounts"]}
            ],
        }
        privileged = json.loads(json.dumps(base))
        privileged["containers"][0]["securityContext"] = {"privileged": True}
        config = json.loads(self.call([*self.start, "kubectl", "--", "config", "view", "--raw", "-o", "json"]))
        (context,) = config["contexts"]
        config["contexts"] = [{"name": name, "context": context["context"]} for name in ("gpu", "plain")]
        config["current-context"] = "gpu"
        Path(self.environment["KUBECONFIG"]).write_text(json.dumps(config))
        home = Path(self.environment["LONGBOAT_HOME"])
        home.mkdir(exist_ok=True)
        contexts = {"gpu": {"pod": {"spec": privileged}}, "plain": {"pod": {"spec": base}}}
        settings = {"kubernetes": {"image": container["image"], "allow_host_paths": True}, "contexts": contexts}
        (home / "config.yaml").write_text(json.dumps(settings))

    def down(self) -> None:
        self.call([*self.start, "down"], code=None)

    # the parts

    def starts(self) -> dict[str, float]:
        """Seconds until the first line of a small script runs that has the GPU, with nothing else on the machine."""
        commands = {
            "bare": [sys.executable, "hold.py", "0"],
            "embedded": [*LONGBOAT, "run", "-q", "--gpus", "1", "hold.py", "0"],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(STARTS + 1):
            for name, command in commands.items():
                began = time.time()
                taken[name].append(float(self.call(command).split()[1]) - began)
        return {name: statistics.median(times[1:]) for name, times in taken.items()}

    def doctor(self) -> dict[str, Any]:
        reports = {name: json.loads(self.longboat("doctor", "-o", "json", *place)) for name, place in PLACES.items()}
        return {
            name: [check["detail"] for check in checks if check["name"] in ("gpu", "gpus")]
            for name, checks in reports.items()
        }

    def training(self) -> dict[str, Any]:
        taken: dict[str, list[dict[str, float]]] = {"bare": [], "embedded": [], "kubernetes": []}
        machine: dict[str, Any] = {}
        for number in range(self.rounds):
            for name in taken:
                began = time.time()
                if name == "bare":
                    out = self.call([sys.executable, "train.py", str(self.steps)])
                else:
                    run = ["run", "-q", "--gpus", "1", "-n", f"train-{number}", *PLACES[name], "train.py"]
                    out = self.longboat(*run, str(self.steps))
                events = {event["event"]: event for event in map(json.loads, out.splitlines())}
                machine = {"torch": events["imported"]["torch"], "device": events["ready"]["device"]}
                taken[name].append(phases(events, began))
        return {"machine": machine, "phases": taken, **ratios(taken)}

    def queueing(self) -> dict[str, Any]:
        figures = {}
        for name, place in PLACES.items():
            self.longboat("run", "-d", "-q", "--gpus", "1", "-n", "first", *place, "hold.py", "8")
            self.longboat("run", "-d", "-q", "--gpus", "1", "-n", "second", *place, "hold.py", "1")
            time.sleep(1.0)
            reason = json.loads(self.longboat("status", "second", "-o", "json", *place))["reason"]
            watched = PodTimes(self.environment) if name == "kubernetes" else None
            self.longboat("wait", "first", "second", *place)
            lines = {run: self.longboat("logs", run, *place).split() for run in ("first", "second")}
            gap = float(lines["second"][1]) - float(lines["first"][1]) - 8.0
            if gap < -0.5:
                raise RuntimeError(f"{name}: both held the GPU: {lines}")
            figures[name] = {"reason": reason, "second_after_first_s": gap}
            if watched is not None:
                figures[name]["steps"] = watched.since(float(lines["first"][1]) + 8.0)
        return figures

    def seeing(self) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name in PLACES:
            with_one = json.loads(self.longboat("run", "-q", "-n", "with", "--gpus", "1", *PLACES[name], "sees.py"))
            without = json.loads(self.longboat("run", "-q", "-n", "without", *WITHOUT[name], "sees.py"))
            if with_one["given"] != 1 or without["given"] != 0:
                raise RuntimeError(f"{name}: {with_one} {without}")
            seen[name] = {"one GPU": with_one, "no GPU": without}
        if any(cases["no GPU"]["widened"] for cases in seen.values()):
            raise RuntimeError(f"a run without GPUs reached one: {seen}")
        return seen

    def isolation(self) -> dict[str, Any]:
        """What runs of the embedded engine reach when they widen CUDA_VISIBLE_DEVICES, as root and as a user; what that
        costs a run without GPUs."""
        reached: dict[str, Any] = {}
        self.folder.chmod(0o755)
        for name, prefix in (("root", ()), ("user", NOBODY)):
            home = self.folder / f"home-{name}"
            home.mkdir(exist_ok=True)
            if prefix:
                os.chown(home, 65534, 65534)
            own = Bench(self.folder, self.steps, self.rounds)
            own.environment.update(LONGBOAT_HOME=str(home), HOME=str(home), LONGBOAT_SLOTS=str(home / "slots"))
            own.environment.update(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
            own.prefix = list(prefix)
            reached[name] = own.widening()
        reached["start of `true`, s"] = self.trivial_starts()
        return reached

    def widening(self) -> dict[str, Any]:
        checks = json.loads(self.longboat("doctor", "-o", "json", code=None))
        seen: dict[str, Any] = {
            "doctor": [check["detail"] for check in checks if check["name"] in ("gpus", "gpu isolation")],
            "one GPU": json.loads(self.longboat("run", "-q", "-n", "with", "--gpus", "1", "sees.py")),
            "no GPU": json.loads(self.longboat("run", "-q", "-n", "without", "sees.py")),
        }
        self.set_isolation("off")
        seen["off"] = json.loads(self.longboat("run", "-q", "-n", "off", "sees.py"))
        self.set_isolation("required")
        seen["nvidia-smi in a run without GPUs"] = self.longboat("run", "-q", "--", "nvidia-smi", "-L", code=None)
        seen["nvidia-smi in a run with one"] = self.longboat("run", "-q", "--gpus", "1", "--", "nvidia-smi", "-L")
        seen["exec beside a run without GPUs"] = self.longboat("exec", "without", "--", "nvidia-smi", "-L", code=None)
        seen["product of matrices"] = self.longboat("run", "-q", "--gpus", "1", "--", "python3", "-c", PRODUCT).strip()
        if seen["one GPU"]["given"] != 1 or seen["no GPU"]["widened"] != 0 or seen["off"]["widened"] < 1:
            raise RuntimeError(json.dumps(seen))
        return seen

    def set_isolation(self, value: str) -> None:
        self.longboat("config", "set", "local.gpu_isolation", value)

    def trivial_starts(self) -> dict[str, float]:
        """Medians, taken in turns: a run of `true`, with and without."""
        taken: dict[str, list[float]] = {"auto": [], "off": []}
        for _ in range(2 * STARTS):
            for value, times in taken.items():
                self.set_isolation(value)
                began = time.monotonic()
                self.longboat("run", "-q", "--", "true")
                times.append(time.monotonic() - began)
        return {value: statistics.median(times[1:]) for value, times in taken.items()}

    def pods(self) -> dict[str, Any]:
        """What ordinary pods reach of GPUs that NVIDIA's device plugin hands out: a cluster of its own, an image with
        files of its own, no privileges."""
        try:
            self.call([*self.start, "up", "--plugin", "--name", PLUGIN])
            self.plugin_settings()
            return self.pods_reach()
        finally:
            self.call([*self.start, "down", "--name", PLUGIN], code=None)

    def plugin_settings(self) -> None:
        show = ["kubectl", "--name", PLUGIN, "--"]
        config = json.loads(self.call([*self.start, *show, "config", "view", "--raw", "-o", "json"]))
        (context,) = config["contexts"]
        config["contexts"] = [{"name": PLUGIN, "context": context["context"]}]
        self.environment = {**self.environment, "KUBECONFIG": str(self.folder / "plugin.kubeconfig")}
        self.environment["LONGBOAT_HOME"] = str(self.folder / "home-plugin")
        Path(self.environment["KUBECONFIG"]).write_text(json.dumps({**config, "current-context": PLUGIN}))
        home = Path(self.environment["LONGBOAT_HOME"])
        home.mkdir()
        kubernetes = {"image": "longboat.test/small:latest", "pod": {"spec": {"hostNetwork": True}}}
        (home / "config.yaml").write_text(json.dumps({"kubernetes": kubernetes}))
        self.call([*self.start, *show, "create", "namespace", "other"])

    def pods_reach(self) -> dict[str, Any]:
        run = ["run", "-q", "--on", PLUGIN]
        reached: dict[str, Any] = {
            "one GPU": json.loads(self.longboat(*run, "--gpus", "1", "reaches.py")),
            "no GPU": json.loads(self.longboat(*run, "reaches.py")),
            "nvidia-smi": self.longboat(*run, "--gpus", "1", "--", "nvidia-smi", "-L").strip(),
        }
        self.longboat(*run, "-d", "--gpus", "1", "-n", "held", "--", "sleep", "40")
        self.wait_running("held", "--on", PLUGIN)
        elsewhere = [*run, "--namespace", "other"]
        reached["no GPU, while another user's run has it"] = json.loads(self.longboat(*elsewhere, "reaches.py"))
        self.longboat(*elsewhere, "-d", "--gpus", "1", "-n", "next", "--", "true")
        status = self.longboat("status", "next", "-o", "json", "--on", PLUGIN, "--namespace", "other")
        reached["one GPU, while another user's run has it"] = json.loads(status)["reason"]
        if any(pod["widened"] > pod["given"] or not is_kept_out(pod) for pod in reached.values() if type(pod) is dict):
            raise RuntimeError(f"a pod reached more than it was given: {reached}")
        if reached["one GPU"]["given"] != 1:
            raise RuntimeError(f"a pod that asked for a GPU reached none: {reached}")
        return reached

    def wait_running(self, run: str, *place: str) -> None:
        until = time.monotonic() + LIMIT_S
        while json.loads(self.longboat("status", run, "-o", "json", *place))["phase"] != "running":
            if time.monotonic() > until:
                raise RuntimeError(f"{run} does not run after {LIMIT_S:g} s")
            time.sleep(0.5)

    def failing(self) -> dict[str, Any]:
        causes: dict[str, Any] = {}
        for name, place in PLACES.items():
            self.longboat("run", "-q", "-n", "oom", "--gpus", "1", *place, "oom.py", code=1)
            self.longboat("run", "-q", "-n", "killed", "--gpus", "1", "--procs", "2", *place, "killed.py", code=137)
            explanations = {
                run: json.loads(self.longboat("explain", run, "-o", "json", *place)) for run in ("oom", "killed")
            }
            if explanations["oom"]["cause"] != "oom" or explanations["killed"]["cause"] != "signal":
                raise RuntimeError(f"{name}: {explanations}")
            causes[name] = {run: {"cause": it["cause"], "headline": it["headline"]} for run, it in explanations.items()}
        return causes


class PodTimes:
    """When pods were seen to change, by a watch; the kubelet's own times are whole seconds."""

    def __init__(self, environment: dict[str, str]) -> None:
        from longboat.kubeapi.client import Client
        from longboat.kubeapi.kinds import POD
        from longboat.kubeapi.watch import Reflector

        self.seen: dict[str, float] = {}
        self.client = Client.open(context="gpu", environment=environment)
        self.watch: Any = Reflector(self.client, POD, labels="longboat.dev/role", on_change=self.changed)
        self.watch.sync()

    def changed(self, change: Any) -> None:
        body, now = change.object, time.time()
        run, status = body["metadata"]["labels"]["longboat.dev/run"], body.get("status") or {}
        states = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
        moments = {
            "the first's container is seen to have ended": run == "first"
            and any("terminated" in state for state in states),
            "the first's pod has ended, and its GPU is free": run == "first" and status.get("phase") == "Succeeded",
            "the second's pod has its node": run == "second" and bool(body["spec"].get("nodeName")),
        }
        for name, has_come in moments.items():
            if has_come:
                self.seen.setdefault(name, now)

    def since(self, moment: float) -> dict[str, float]:
        self.watch.close()
        self.client.close()
        return {name: at - moment for name, at in sorted(self.seen.items(), key=lambda item: item[1])}


def is_kept_out(pod: dict[str, Any]) -> bool:
    """Whether the device files that a pod made by itself opened no GPU but its own."""
    own = {path.removeprefix("/dev/nvidia") for path in pod["devices"]}
    return not any(text == "opened" for number, text in pod["made by itself"].items() if number not in own)


def phases(events: dict[str, Any], began: float) -> dict[str, float]:
    """Seconds from the command to each moment, and what a step took."""
    moments = {name: events[name]["time"] - began for name in ("started", "imported", "ready", "first step")}
    ended = events["ended"]
    return {**moments, "step_median_s": ended["median_s"], "step_p10_s": ended["p10_s"], "loss": ended["loss"]}


def ratios(taken: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    medians = {name: statistics.median(row["step_median_s"] for row in rounds) for name, rounds in taken.items()}
    starts = {name: statistics.median(row["started"] for row in rounds) for name, rounds in taken.items()}
    losses = {name: sorted({row["loss"] for row in rounds}) for name, rounds in taken.items()}
    return {
        "step_median_s": medians,
        "step_ratio": {name: median / medians["bare"] for name, median in medians.items()},
        "started_s": starts,
        "loss": losses,
    }


def gpu_name() -> str:
    if shutil.which("nvidia-smi") is None:
        return "none"
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "gpu.json")
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these; the other results are kept")
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="longboat-gpu-") as folder:
        bench = Bench(Path(folder), arguments.steps, arguments.rounds)
        kept = json.loads(arguments.output.read_text()) if arguments.parts and arguments.output.exists() else {}
        results: dict[str, Any] = {**kept, "gpu": gpu_name(), "cores": os.cpu_count(), "failed": []}
        parts: dict[str, Callable[[], Any]] = {
            "starts": bench.starts,
            "cluster": lambda: bench.up(arguments.archive.resolve()),
            "doctor": bench.doctor,
            "training": bench.training,
            "queueing": bench.queueing,
            "seeing": bench.seeing,
            "failing": bench.failing,
            "isolation": bench.isolation,
            "pods": bench.pods,
        }
        try:
            without = str(arguments.archive) == "-"
            wanted = [name for name in parts if not arguments.parts or name in (*arguments.parts, "cluster")]
            wanted = [name for name in wanted if name in ALONE or not without]
            for name in wanted:
                began = time.monotonic()
                try:
                    results[name] = parts[name]()
                except Exception:
                    results["failed"].append({name: traceback.format_exc()[-4000:]})
                print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
                arguments.output.write_text(json.dumps(results, indent=1) + "\n")
        finally:
            if str(arguments.archive) != "-":
                bench.down()
    print(json.dumps(results, indent=1))
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
