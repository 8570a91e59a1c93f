"""The Kubernetes engine on the clusters of testbed/: the first log line against kubectl, 1,000 runs, a re-run after a
change of code, the requests of one run by verb, and a killed rank: until the first step after it, in place and in new
pods.

python bench/kubernetes.py [first|thousand|rerun|requests|restart]...
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grounds
import thousand
from bundles import FOLDERS, make_tree

TIMES = 9
FILES = 1_000
RERUNS = 5
SCRIPT = "print('hello')\n"
JOBS: dict[str, dict[str, Any]] = {"plain": {}, "asks for a CPU": {"cpus": 1}}
NODES, RESTARTS = 4, 5
KILLED = """
import os, time
began = float(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
import longboat
rank = os.environ["RANK"]
if os.environ["LONGBOAT_ATTEMPT"] == "0":
    time.sleep(2)  # all of them run
    if rank == "1":
        print("killed at", time.time(), flush=True)
        os.kill(os.getpid(), 9)
    time.sleep(600)
longboat.step(1)
print("stepped at", time.time(), flush=True)
print("took at", time.clock_gettime(time.CLOCK_BOOTTIME) - began, flush=True)
"""
VERBS = ("get", "list", "watch", "create, as a trial", "create", "patch", "update", "delete", "log", "exec")


def measure(chosen: list[str] | None = None) -> dict[str, float]:
    figures: dict[str, float] = {}
    here = [part for part in (first, rerun, requests, restart) if not chosen or part.__name__ in chosen]
    if here:
        with grounds.cluster("bench-kubernetes", "--profile", "pods") as ground:
            for part in here:
                figures.update(part(ground))
    if not chosen or "thousand" in chosen:
        figures.update(thousand.measure())
    return figures


def first(ground: grounds.Ground) -> dict[str, float]:
    """Seconds from typing the command until the job's first line is shown."""
    project = ground.folder / "first"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    contenders: dict[str, Callable[[int], list[str]]] = {
        "longboat run": lambda number: [grounds.longboat(), "run", "train.py"],
        "kubectl, the script in the command": lambda number: apply(project, number, is_mounted=False),
        "kubectl, the script in a ConfigMap": lambda number: apply(project, number, is_mounted=True),
        "kubectl, the Job's end awaited": lambda number: apply(project, number, is_mounted=True, is_awaited=True),
        "kubectl run -i, with the exit code": run_attached,
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(TIMES + 1):
        for name, command in contenders.items():
            may_lose = command is run_attached  # it attaches to a container that may have ended by then
            taken[name].append(lines_of(command(number), project, ground.environment, may_lose=may_lose))
    figures = {
        f"first log line: {name}, s": statistics.median(line for line, _ in times[1:]) for name, times in taken.items()
    }
    ours, bare, mounted, *_ = figures.values()
    figures["first log line: longboat later than kubectl, s"] = ours - bare
    figures["first log line: longboat later than kubectl with a ConfigMap, s"] = ours - mounted
    whole = {name: statistics.median(end for _, end in times[1:]) for name, times in taken.items()}
    return {**figures, **{f"until the command returns: {name}, s": value for name, value in whole.items()}}


def run_attached(number: int) -> list[str]:
    """The one command of kubectl that shows a pod's output and returns its exit code, as `longboat run` does."""
    words = ["run", f"attached-{number}", "--image", grounds.PYTHON_IMAGE, "--restart=Never", "-i", "--quiet"]
    return [grounds.kubectl(), *words, "--image-pull-policy=IfNotPresent", "--", "python3", "-c", SCRIPT]


def apply(project: Path, number: int, *, is_mounted: bool, is_awaited: bool = False) -> list[str]:
    """What somebody types who has no Longboat. `kubectl logs` itself waits for the pod, and not for how it ended."""
    name = f"plain-{number}-{'m' if is_mounted else 'c'}{'w' if is_awaited else ''}"
    container: dict[str, Any] = {
        "name": "main",
        "image": grounds.PYTHON_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/code/train.py"] if is_mounted else ["python3", "-c", SCRIPT],
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    objects: list[dict[str, Any]] = []
    if is_mounted:
        container["volumeMounts"] = [{"name": "code", "mountPath": "/code"}]
        spec["volumes"] = [{"name": "code", "configMap": {"name": name}}]
        meta = {"name": name}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"train.py": SCRIPT}})
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": spec}}}
    manifest = project / f"{name}.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, job]}))
    logs = f"{grounds.kubectl()} logs -f job/{name} --pod-running-timeout=1m 2>/dev/null"
    end = f"; {grounds.kubectl()} wait --for=condition=complete job/{name} >/dev/null" if is_awaited else ""
    made = f"{grounds.kubectl()} apply -f {manifest} >/dev/null"
    return ["sh", "-c", f"{made} && until {logs}; do sleep 0.1; done{end}"]


def lines_of(
    command: list[str], cwd: Path, environment: dict[str, str], *, may_lose: bool = False
) -> tuple[float, float]:
    """Seconds until the first line, and until the command has returned."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        seen = time.perf_counter() - began
        messages = process.stderr.read()
    if not (may_lose and not line) and line != SCRIPT.encode().replace(b"print('", b"").replace(b"')", b""):
        raise SystemExit(f"{command[:3]} printed {line!r}: {messages.decode()[-500:]}")
    return seen, time.perf_counter() - began


def rerun(ground: grounds.Ground) -> dict[str, float]:
    """The whole command `longboat run -d` on a tree of 1,000 files, and how many bytes of objects it sends."""
    tree = make_tree(ground.folder / "rerun", FILES, under_git=True)
    command = [grounds.longboat(), "run", "-q", "-d", "-n", "rerun", "--", "true"]

    def submit() -> float:
        began = time.perf_counter()
        subprocess.run(command, cwd=tree, env=ground.environment, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began

    def change(files: int, mark: object) -> None:
        for number in range(files):
            (tree / f"d{number % FOLDERS}/f{number}.py").write_text(f"changed = {mark}, {number}\n" * 60)

    figures = {f"{FILES:,} files: the first run handed over, s": submit()}
    for change_name, count in (("one of them changed", 1), ("all of them changed", FILES)):
        times = []
        for mark in range(RERUNS):
            change(count, mark)
            times.append(submit())
        figures[f"{FILES:,} files, {change_name}: handed over, s"] = statistics.median(times)
        change(count, "counted")
        figures[f"{FILES:,} files, {change_name}: sent, KiB"] = sent_by(ground, tree) / 1024
    return figures


def sent_by(ground: grounds.Ground, tree: Path) -> int:
    """Bytes in the bodies of all requests of one submission, those of the trial included."""
    from longboat import sdk
    from longboat.engines.engine import Submission
    from longboat.engines.kubernetes.engine import KubernetesEngine

    engine = KubernetesEngine(environment=ground.environment)
    transport, sizes = engine.client.transport, []
    ask = transport.request

    def counted(asked: Any) -> bytes:
        sizes.append(len(asked.body or b""))
        return ask(asked)

    transport.request = counted  # type: ignore[method-assign,assignment]
    job = sdk.job(name="rerun", run="true")
    engine.submit(Submission(job=job, base=str(tree), environment=ground.environment))
    engine.close()
    return sum(sizes)


def restart(ground: grounds.Ground) -> dict[str, float]:
    """Seconds from SIGKILL of a rank of four nodes until every rank has taken its first step again, on one clock: the
    nodes of the test cluster are this machine. And what a rank takes from its start to its first step by itself."""
    project = ground.folder / "restart"
    project.mkdir()
    (project / "train.py").write_text(KILLED)
    taken: dict[str, list[float]] = {"in-place": [], "new": []}
    alone: list[float] = []
    for number in range(RESTARTS):
        for way, times in taken.items():
            name = f"{way}-{number}"
            retries = {"count": 1, "backoff": "0s", "restart": way}
            job = {"name": name, "nodes": NODES, "run": ["python", "train.py"], "retries": retries}
            (project / "job.yaml").write_text(json.dumps(job))
            command = [grounds.longboat(), "run", "-q", "job.yaml"]
            done = subprocess.run(
                command, cwd=project, env=ground.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            rows = [line.split()[-3:] for line in done.stdout.splitlines() if " at " in line]
            said = [(row[0], float(row[2])) for row in rows]
            killed = [at for word, at in said if word == "killed"]
            steps = [at for word, at in said if word == "stepped"]
            if done.returncode or len(killed) != 1 or len(steps) != NODES:
                raise SystemExit(f"{name}: {done.stdout[-500:]} {done.stderr[-500:]}")
            times.append(max(steps) - killed[0])
            alone += [at for word, at in said if word == "took"]
    figures = {f"rank killed, {NODES} nodes: first step, {way}, s": statistics.median(ts) for way, ts in taken.items()}
    return {**figures, "rank killed: of that its own start-up, s": statistics.median(alone)}


def requests(ground: grounds.Ground) -> dict[str, float]:
    """Requests of one run that ends at once, by verb: of handing it over, following its log, waiting for its end."""
    from longboat import sdk
    from longboat.core.runs import LogQuery
    from longboat.engines.engine import Submission
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from testbed import clusters
    from testbed.proxy import ApiProxy

    counts: dict[str, Counter[str]] = {}
    proxy = ApiProxy(clusters.get(ground.name))
    environment = {**ground.environment, "KUBECONFIG": str(proxy.kubeconfig)}
    (ground.folder / "counted").mkdir()
    (ground.folder / "counted" / "train.py").write_text(SCRIPT)

    def count(step: str) -> None:
        counts[step] = Counter(verb_of(passed.request) for passed in proxy.seen)
        proxy.seen.clear()

    try:
        for name, fields in JOBS.items():
            job = sdk.job(name="counted", run="python3 train.py", **fields)
            at = Submission(job=job, base=str(ground.folder / "counted"), environment=environment)
            engine = KubernetesEngine(environment=environment)
            run = engine.submit(at).name
            count(f"{name}: submit")
            list(engine.logs(run, LogQuery(follow=True)))
            count(f"{name}: logs -f")
            engine.wait(run)
            count(f"{name}: wait after it")
            run = engine.submit(at).name
            proxy.seen.clear()
            engine.wait(run)
            count(f"{name}: wait alone")
            engine.close()
    finally:
        proxy.close()
    cells = {f"{verb}/{step}": float(seen[verb]) for verb in VERBS for step, seen in counts.items()}
    cells |= {f"all/{step}": float(seen.total()) for step, seen in counts.items()}
    return {f"requests of one run: {cell}": value for cell, value in cells.items()}


def verb_of(request: Any) -> str:
    """As kubectl and RBAC call it."""
    path, _, query = request.target.partition("?")
    if request.method == "GET":
        if "watch=true" in query:
            return "watch"
        last = path.rstrip("/").rpartition("/")[2]
        if last in ("log", "exec"):
            return str(last)
        parts = path.strip("/").split("/")
        depth = len(parts) - (2 if parts[0] == "api" else 3)
        is_list = depth in (1, 3) if "namespaces" in parts else depth == 1
        return "list" if is_list and parts[0] in ("api", "apis") and len(parts) > 2 else "get"
    if request.method == "POST":
        return "create, as a trial" if "dryRun=All" in query else "create"
    return {"PATCH": "patch", "PUT": "update", "DELETE": "delete"}[request.method]


if __name__ == "__main__":
    for name, value in measure(sys.argv[1:]).items():
        print(f"{name:80} {value:10.3f}")
