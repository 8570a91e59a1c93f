"""Where faults are tried: an engine in a namespace, ranks that sign a book on this machine, a census of all objects.

The nodes of the test cluster share this machine's files, so that ranks are led from here: each signs the book when it
starts and ends, holds a lock for as long as it lives, and ends when it is let go, with the exit code that it is told.
One that is to fail lets the others say their last word first: they are ended as soon as it has. One that is asked to
end takes a while, as one that saves a checkpoint does.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.specs.read import read_job
from testbed import api
from testbed.clusters import Cluster
from testbed.errors import TestbedError

IMAGE = "longboat.test/python:latest"
LONG_S = 240.0
"""Nothing that must happen is waited for longer; how long it takes is no matter of these tests."""

RANK = """
import fcntl, os, signal, sys, time
rank, attempt = os.environ["RANK"], os.environ["LONGBOAT_ATTEMPT"]
def sign(word):
    with open("/book/signed", "a") as book:
        book.write(f"{attempt} {rank} {word}\\n")
def leave(*_):
    time.sleep(2)
    sign("left")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, leave)
mine = open(f"/book/rank-{rank}", "w")
try:
    fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sign("overlap")
sign("start")
print("ready", attempt, flush=True)
count = 0
while not os.path.exists(f"/book/go-{attempt}"):
    time.sleep(0.05)
    count += 1
    if count % 4 == 0:
        print("line", count // 4, flush=True)
print("last", attempt, flush=True)
sign("end")
told = open(f"/book/go-{attempt}").read().split()
code = int(told[int(rank)]) if told else 0
def ends():
    rows = [row.split() for row in open("/book/signed")]
    return sum(row[0] == attempt and row[2] == "end" for row in rows)
while code and ends() < len(told):
    time.sleep(0.02)
sys.exit(code)
"""


class Ground:
    """One test's engine, its ranks' book, and what was in the cluster before."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        root: Path,
        kubeconfig: Path | None = None,
        *,
        queue: str | None = None,
    ) -> None:
        """`queue`: Kueue's, for all runs."""
        self.cluster = cluster
        self.namespace = namespace
        self.root = root
        self.book = root / "book"
        self.storage = root / "storage"
        for folder in (self.book, self.storage):
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        home = root / "home"
        home.mkdir()
        self.home = home
        self.queue = queue
        self.configure()
        self.environment = {
            "LONGBOAT_HOME": str(home),
            "KUBECONFIG": str(kubeconfig or cluster.kubeconfig),
            "PATH": "/usr/bin:/bin",
        }
        self.notices: list[str] = []
        self.engine = self.open()
        self.api = api.Api(cluster)
        self.before: set[str] = set()
        self.until(self._note_before, "the cluster serves all its types")

    def _note_before(self) -> bool:
        self.before = self.census()
        return True

    def configure(self, **more: Any) -> None:
        """Settings for engines that are opened from now on."""
        settings = {"image": IMAGE, "allow_host_paths": True, "storage": {"path": str(self.storage)}}
        settings = {**settings, "queue": self.queue, **more}
        given = {key: value for key, value in settings.items() if value is not None}
        (self.home / "config.yaml").write_text(json.dumps({"kubernetes": given}))

    def open(self) -> KubernetesEngine:
        """The engine as a new command would open it."""
        return KubernetesEngine(namespace=self.namespace, environment=self.environment, on_notice=self.notices.append)

    def close(self) -> None:
        try:
            for run in self.engine.list():
                if not run.is_final:
                    self.engine.stop(run.name, grace_s=0)
        finally:
            self.engine.close()
            self.api.close()

    # runs

    def submission(self, code: str = RANK, run_id: str | None = None, **fields: Any) -> Submission:
        folder = self.root / "code"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(code)
        given = {
            "name": "job",
            "run": ["python", "train.py"],
            "grace": "5s",
            "volumes": {"/book": {"path": str(self.book)}},
            **fields,
        }
        loaded = read_job([], fields=given, environment=self.environment, cwd=folder)
        return Submission(job=loaded.job, base=loaded.base, run_id=run_id, environment=self.environment)

    def submit(self, **fields: Any) -> RunStatus:
        return self.engine.submit(self.submission(**fields))

    def wait(self, run: str = "job", engine: KubernetesEngine | None = None) -> RunStatus:
        return (engine or self.engine).wait(run, timeout_s=LONG_S)

    def lines(self, run: str = "job") -> list[str]:
        return [line.data.decode().rstrip("\n") for line in self.engine.logs(run, LogQuery())]

    # the book

    def signed(self, word: str) -> list[tuple[int, int]]:
        """Attempt and rank of all that signed with this word."""
        try:
            rows = [row.split() for row in (self.book / "signed").read_text().splitlines()]
        except FileNotFoundError:
            return []
        return [(int(attempt), int(rank)) for attempt, rank, said in rows if said == word]

    def until_started(self, ranks: int = 1, attempt: int = 0) -> None:
        wanted = {(attempt, rank) for rank in range(ranks)}
        self.until(lambda: wanted <= set(self.signed("start")), f"attempt {attempt} starts with {ranks} ranks")

    def let_go(self, attempt: int = 0, *codes: int) -> None:
        """The ranks of this attempt end, with these exit codes."""
        draft = self.book / "draft"
        draft.write_text(" ".join(map(str, codes)))
        draft.rename(self.book / f"go-{attempt}")

    def check_book(self, ranks: int = 1, attempts: int = 1) -> None:
        """Every rank of every attempt ran once, and none beside its successor. No rank is left."""
        wanted = {(attempt, rank): 1 for attempt in range(attempts) for rank in range(ranks)}
        assert Counter(self.signed("start")) == wanted
        assert self.signed("overlap") == []
        assert self.living_ranks() == []

    def living_ranks(self) -> list[str]:
        """Ranks whose lock is held."""
        found = []
        for path in self.book.glob("rank-*"):
            with open(path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.append(path.name)
        return found

    # objects

    def census(self) -> set[str]:
        """Everything in the cluster but events: of all namespaced types what is in ours, of the others all."""
        found = set()
        for kind, path, is_namespaced in self.collections():
            if kind in ("Event", "ComponentStatus") or kind.endswith("Metrics"):
                continue
            for item in self.api.items(path):
                meta = item["metadata"]
                if is_namespaced or self.namespace in json.dumps(item):
                    found.add(f"{kind} {meta['name']}")
        return found

    def collections(self) -> list[tuple[str, str, bool]]:
        versions = ["/api/v1"]
        versions += [
            f"/apis/{one['groupVersion']}"
            for group in self.api.call("GET", "/apis")["groups"]
            for one in group["versions"]
        ]
        found = []
        for version in versions:
            for resource in self.api.call("GET", version)["resources"]:
                if "list" in resource["verbs"] and "/" not in resource["name"]:
                    place = f"/namespaces/{self.namespace}" if resource["namespaced"] else ""
                    found.append((resource["kind"], f"{version}{place}/{resource['name']}", resource["namespaced"]))
        return found

    def remove(self, run: str = "job", engine: KubernetesEngine | None = None) -> None:
        """`rm --purge` leaves no object and no file. Shared code goes a moment later, when the cluster collects it."""
        (engine or self.engine).delete(run, purge=True)
        self.until(lambda: self.census() == self.before, "nothing is left", lambda: self.census() ^ self.before)
        left = [path for path in self.storage.rglob("*") if path.is_file()]
        assert left == [], "files are left in the storage"

    def until(self, holds: Callable[[], object], what: str, told: Callable[[], object] = lambda: "") -> None:
        """An API server that is away for a moment is waited for."""
        deadline = time.monotonic() + LONG_S
        while True:
            try:
                if holds():
                    return
            except TestbedError:
                pass
            assert time.monotonic() < deadline, f"never happened: {what} {told()}"
            time.sleep(0.05)
