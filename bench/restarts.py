"""From a failure to the first step after it, four nodes: in place, one pod replaced, new pods, JobSet, torchrun.

python bench/restarts.py

A rank is plain Python that notes the time of each step, so the framework's own start-up is that of one interpreter. The
time counts until all four ranks have made their first step again. The pods share this machine; their image is there.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grounds

NODES = 4
ROUNDS = 2
LONGEST_S = 330.0
"""No further round begins after that: on a busy machine one has to do."""
PATIENCE_S = 180.0
FAILED, GONE = "SIGKILL of a rank", "a pod is deleted"
SCRIPT = """
import json, os, signal, sys, time
rank, book = os.environ["RANK"], os.environ["BOOK"]
steps = open(f"{book}/steps-{rank}", "a")
step = 0
while not os.path.exists(f"{book}/end"):
    step += 1
    print(json.dumps([time.time(), step]), file=steps, flush=True)
    if rank == "1" and os.path.exists(f"{book}/kill"):
        os.rename(f"{book}/kill", f"{book}/killed")
        with open(f"{book}/when", "w") as when:
            print(time.time(), file=when, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
"""


class Book:
    """A folder in which four ranks note their steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "train.py").write_text(SCRIPT)

    def first_steps(self, since: float) -> list[float]:
        """When each rank made its first step after a start that was later than `since`."""
        firsts = []
        for rank in range(NODES):
            try:
                lines = (self.folder / f"steps-{rank}").read_text().splitlines()
            except FileNotFoundError:
                continue
            rows = [json.loads(line) for line in lines if line.endswith("]")]
            firsts += [at for at, step in rows if step == 1 and at > since][:1]
        return firsts

    def until_all_step(self, since: float) -> float:
        until = time.monotonic() + PATIENCE_S
        while len(self.first_steps(since)) < NODES:
            if time.monotonic() > until:
                raise SystemExit(f"only {len(self.first_steps(since))} of {NODES} ranks came back")
            time.sleep(0.02)
        return max(self.first_steps(since))

    def kill(self) -> float:
        (self.folder / "kill").touch()
        until = time.monotonic() + PATIENCE_S
        while not (self.folder / "when").exists() or not (self.folder / "when").read_text().endswith("\n"):
            if time.monotonic() > until:
                raise SystemExit("no rank was killed")
            time.sleep(0.005)
        return float((self.folder / "when").read_text())

    def end(self) -> None:
        (self.folder / "end").touch()


Start = Callable[[grounds.Ground, Book], Any]


def measure() -> dict[str, float]:
    taken: dict[str, list[float]] = {}
    with grounds.cluster("bench-restarts", "--profile", "jobset") as ground:
        ground.set(image=grounds.PYTHON_IMAGE, allow_host_paths=True)
        until = time.monotonic() + LONGEST_S
        for number in range(ROUNDS):
            if number and time.monotonic() > until:
                break
            for name, start, event in CASES:
                book = Book(ground.folder / f"book-{len(taken)}-{number}-{len(name)}-{time.monotonic_ns()}")
                with start(ground, book) as take_away:
                    book.until_all_step(0.0)
                    since = book.kill() if event == FAILED else take_away()
                    seconds = book.until_all_step(since) - since
                    book.end()
                print(f"{event}: {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
                taken.setdefault(f"{event}: {name}/until all step again, s", []).append(seconds)
    return {name: statistics.median(values) for name, values in taken.items()}


@contextmanager
def of_longboat(ground: grounds.Ground, book: Book, restart: str) -> Iterator[Callable[[], float]]:
    job = {
        "name": "restarts",
        "run": "python train.py",
        "nodes": NODES,
        "grace": "1s",
        "env": {"BOOK": "/book"},
        "volumes": {"/book": {"path": str(book.folder)}},
        "retries": {"count": 2, "backoff": "0s", "restart": restart},
    }
    (book.folder / "job.yaml").write_text(json.dumps(job))
    run = subprocess.Popen(
        [grounds.longboat(), "run", "-q", "job.yaml"],
        cwd=book.folder,
        env=ground.environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield lambda: delete_pod(ground, "batch.kubernetes.io/job-completion-index=1,longboat.dev/role=worker")
        if run.wait(PATIENCE_S) != 0:
            raise SystemExit("the run has failed")
    finally:
        if run.poll() is None:
            run.kill()
    subprocess.run([grounds.longboat(), "rm", "--all", "--yes"], env=ground.environment, stdout=subprocess.DEVNULL)


@contextmanager
def in_place(ground: grounds.Ground, book: Book) -> Iterator[Callable[[], float]]:
    with of_longboat(ground, book, "in-place") as take_away:
        yield take_away


@contextmanager
def new_pods(ground: grounds.Ground, book: Book) -> Iterator[Callable[[], float]]:
    with of_longboat(ground, book, "new") as take_away:
        yield take_away


def jobset(book: Book) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": grounds.PYTHON_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        # Not as process 1 of its container, which no signal of its own can kill.
        "command": ["sh", "-c", "RANK=$JOB_COMPLETION_INDEX python3 /book/train.py; exit $?"],
        "env": [{"name": "BOOK", "value": "/book"}],
        "volumeMounts": [{"name": "book", "mountPath": "/book"}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "book", "hostPath": {"path": str(book.folder)}}],
    }
    job = {"completionMode": "Indexed", "completions": NODES, "parallelism": NODES, "backoffLimit": 0}
    template = {"spec": {**job, "template": {"spec": pod}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "peer", "namespace": grounds.NAMESPACE},
        "spec": {
            "failurePolicy": {"maxRestarts": 2},
            "replicatedJobs": [{"name": "worker", "replicas": 1, "template": template}],
        },
    }


@contextmanager
def jobsets_own(ground: grounds.Ground, book: Book) -> Iterator[Callable[[], float]]:
    from testbed import api, clusters

    client = api.Api(clusters.get(ground.name))
    path = api.path_of("JobSet", "jobset.x-k8s.io/v1alpha2", grounds.NAMESPACE, "peer")
    client.create(jobset(book))
    client.close()
    try:
        yield lambda: delete_pod(
            ground, "batch.kubernetes.io/job-completion-index=1,jobset.sigs.k8s.io/jobset-name=peer"
        )
    finally:
        client = api.Api(clusters.get(ground.name))
        client.delete(path)
        api.wait_for(
            "the JobSet and its pods are gone", lambda: client.get(path) is None and not pods(client), PATIENCE_S
        )
        client.close()


@contextmanager
def torchrun(ground: grounds.Ground, book: Book) -> Iterator[Callable[[], float]]:
    """Four agents on this machine, in no pods: what they need is less than in pods."""
    from tests.frameworks import environments

    program = environments.make("torch") / "bin" / "torchrun"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [f"--nnodes={NODES}", "--nproc-per-node=1", "--max-restarts=2", "--rdzv-backend=c10d", "--rdzv-id=peer"]
    command = [str(program), *words, f"--rdzv-endpoint=127.0.0.1:{port}", str(book.folder / "train.py")]
    env = {**os.environ, "BOOK": str(book.folder), "OMP_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    agents = [subprocess.Popen(command, env=env, **quiet) for _ in range(NODES)]  # type: ignore[call-overload]
    try:
        yield lambda: 0.0
        for agent in agents:
            agent.wait(PATIENCE_S)
    finally:
        for agent in agents:
            if agent.poll() is None:
                agent.kill()


def pods(client: Any) -> list[Any]:
    from testbed import api

    return client.items(api.path_of("Pod", "v1", grounds.NAMESPACE))  # type: ignore[no-any-return]


def delete_pod(ground: grounds.Ground, labels: str) -> float:
    from testbed import api, clusters

    client = api.Api(clusters.get(ground.name))
    path = api.path_of("Pod", "v1", grounds.NAMESPACE)
    names = [pod["metadata"]["name"] for pod in client.items(f"{path}?labelSelector={labels.replace('=', '%3D')}")]
    now = time.time()
    for name in names:
        client.delete(api.path_of("Pod", "v1", grounds.NAMESPACE, name))
    client.close()
    return now


CASES: tuple[tuple[str, Start, str], ...] = (
    ("Longboat, in place", in_place, FAILED),
    ("Longboat, new pods", new_pods, FAILED),
    ("JobSet", jobsets_own, FAILED),
    ("torchrun --max-restarts (no pods)", torchrun, FAILED),
    ("Longboat, the pod replaced", in_place, GONE),
    ("Longboat, new pods", new_pods, GONE),
    ("JobSet", jobsets_own, GONE),
)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
