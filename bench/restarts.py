"""From a failure to the first step after it, four nodes: in place, with a spare, a pod replaced, new pods, and peers.

python bench/restarts.py [--results FILE] [--rounds N] [--until SECONDS] [--without PART]...

Parts are in-place, spare, new-pods, jobset and torchrun, which is left out where it is not installed: so does a bare
machine with a cache of the test cluster (`python -m testbed pack --profile jobset`).

A rank is plain Python that notes the time of each step, so the framework's own start-up is that of one interpreter. The
time counts until all four ranks have made their first step again. The pods share this machine; their image is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
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
"""No further case begins after that, of any round but the first: on a busy machine one has to do."""
PATIENCE_S = 180.0
LONGBOAT = (sys.executable, "-m", "longboat")
FAILED, KILLED, GONE = "SIGKILL of a rank", "SIGKILL of a whole container", "a pod is deleted"
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

    def kill_container(self) -> float:
        """The nodes share this machine: the first process of a container is an ancestor of its rank."""
        (rank,) = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_rank_1(pid)]
        first = rank
        while namespace_of(parent_of(first)) == namespace_of(rank):
            first = parent_of(first)
        now = time.time()
        os.kill(first, signal.SIGKILL)
        return now

    def _is_rank_1(self, pid: int) -> bool:
        try:
            variables = set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        is_here = f"BENCH_BOOK={self.folder}".encode() in variables
        return is_here and b"RANK=1" in variables and words[0].rpartition(b"/")[2].startswith(b"python")

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


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def namespace_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


Start = Callable[[grounds.Ground, Book], Any]


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=None, help="write them as JSON, also after each case")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--until", type=float, default=LONGEST_S, metavar="SECONDS", help="no further case after that")
    parser.add_argument("--without", action="append", default=[], choices=sorted({part for _, part, _, _ in CASES}))
    return parser.parse_args(words)


def measure(options: argparse.Namespace | None = None) -> dict[str, float]:
    options = options or parse([])
    taken: dict[str, list[float]] = {}
    with grounds.cluster("bench-restarts", "--profile", "jobset") as ground:
        ground.set(image=grounds.PYTHON_IMAGE, allow_host_paths=True)
        until = time.monotonic() + options.until
        for number in range(options.rounds):
            for name, part, start, event in CASES:
                if part in options.without or (number and time.monotonic() > until):
                    continue
                book = Book(ground.folder / f"book-{len(taken)}-{number}-{len(name)}-{time.monotonic_ns()}")
                with start(ground, book) as take_away:
                    book.until_all_step(0.0)
                    since = {FAILED: book.kill, KILLED: book.kill_container, GONE: take_away}[event]()
                    seconds = book.until_all_step(since) - since
                    book.end()
                print(f"{event}: {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
                taken.setdefault(f"{event}: {name}/until all step again, s", []).append(seconds)
                if options.results:
                    options.results.write_text(json.dumps(taken, indent=2) + "\n")
    return {name: statistics.median(values) for name, values in taken.items()}


@contextmanager
def of_longboat(ground: grounds.Ground, book: Book, restart: str, *, spares: int = 0) -> Iterator[Callable[[], float]]:
    job = {
        "name": "restarts",
        "run": "python train.py",
        "nodes": NODES,
        "spares": spares,
        "grace": "1s",
        "env": {"BOOK": "/book", "BENCH_BOOK": str(book.folder)},
        "volumes": {"/book": {"path": str(book.folder)}},
        "retries": {"count": 2, "backoff": "0s", "restart": restart},
    }
    (book.folder / "job.yaml").write_text(json.dumps(job))
    run = subprocess.Popen(
        [*LONGBOAT, "run", "-q", "job.yaml"],
        cwd=book.folder,
        env=ground.environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        if spares:
            until_spares_wait(ground, spares)
        yield lambda: delete_pod(ground, "batch.kubernetes.io/job-completion-index=1,longboat.dev/role=worker")
        if run.wait(PATIENCE_S) != 0:
            raise SystemExit("the run has failed")
    finally:
        if run.poll() is None:
            run.kill()
    subprocess.run([*LONGBOAT, "rm", "--all", "--yes"], env=ground.environment, stdout=subprocess.DEVNULL)


@contextmanager
def in_place(ground: grounds.Ground, book: Book) -> Iterator[Callable[[], float]]:
    with of_longboat(ground, book, "in-place") as take_away:
        yield take_away


@contextmanager
def with_spare(ground: grounds.Ground, book: Book) -> Iterator[Callable[[], float]]:
    with of_longboat(ground, book, "in-place", spares=1) as take_away:
        yield take_away


def until_spares_wait(ground: grounds.Ground, count: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        words = [*LONGBOAT, "status", "-o", "json"]
        answer = subprocess.run(words, env=ground.environment, capture_output=True, check=False).stdout or b"{}"
        spares = json.loads(answer).get("spares") or []
        if sum(bool(spare.get("is_ready")) for spare in spares) == count:
            return
        time.sleep(0.5)
    raise SystemExit("the spare did not prepare itself")


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
        "env": [{"name": "BOOK", "value": "/book"}, {"name": "BENCH_BOOK", "value": str(book.folder)}],
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


CASES: tuple[tuple[str, str, Start, str], ...] = (
    ("Longboat, in place", "in-place", in_place, FAILED),
    ("Longboat, new pods", "new-pods", new_pods, FAILED),
    ("JobSet", "jobset", jobsets_own, FAILED),
    ("torchrun --max-restarts (no pods)", "torchrun", torchrun, FAILED),
    ("Longboat, a spare", "spare", with_spare, KILLED),
    ("Longboat, the pod replaced", "in-place", in_place, KILLED),
    ("Longboat, new pods", "new-pods", new_pods, KILLED),
    ("JobSet", "jobset", jobsets_own, KILLED),
    ("Longboat, a spare", "spare", with_spare, GONE),
    ("Longboat, the pod replaced", "in-place", in_place, GONE),
    ("Longboat, new pods", "new-pods", new_pods, GONE),
    ("JobSet", "jobset", jobsets_own, GONE),
)


if __name__ == "__main__":
    print(json.dumps(measure(parse()), indent=2))
