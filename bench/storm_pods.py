"""Episodes on the Kubernetes engine: real pods on two nodes of test clusters, whose parts are killed as well.

The nodes share this machine, so that ranks and launchers are processes that can be found and killed here. Each episode
has a namespace of its own in one of the clusters. Our controller, as a process, looks after all runs of a cluster; it
is killed too. Runs are plain Jobs, JobSets where the cluster has JobSet, or queued by Kueue where it has that.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import grounds
from longboat.core.errors import LongboatError
from longboat.core.runs import LogLine, RunStatus
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import (
    CONFIG_MAP,
    EVENT,
    JOB,
    JOBSET,
    LEASE,
    NAMESPACE,
    PDB,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    WORKLOAD,
)
from longboat.kubeapi.leases import GATE
from storm_episode import PlayedEpisode, kill, parent, processes
from storm_plan import Episode
from storm_trainer import NeverHappened, until
from testbed import api, kueue
from testbed.errors import TestbedError

KINDS = ("rank", "launcher", "pod", "exit")
PARTS = ("apiserver", "kubelet", "controller", "gate holder", "partition", "loss", "delay")
FLAVOURS = {"kubernetes": (), "jobset": ("jobset",), "kueue": ("kueue",)}
"""What clusters have besides two nodes."""
CUT_S = 5.0
"""Shorter than a member of the gang or a node is given up."""
KEPT = {(CONFIG_MAP.kind, "kube-root-ca.crt")}
MADE = (CONFIG_MAP, SECRET, SERVICE, POD, JOB, LEASE, PDB)
"""Kinds that a run leaves nothing of."""
SHOWN = (POD, JOB, CONFIG_MAP, EVENT)
"""What is kept of an episode that went wrong."""
QUOTAS = {"cpu": "1000", "memory": "1Pi", "ephemeral-storage": "1Pi"}
"""Kueue lets all in: what is tried is that nothing is lost."""


class Town:
    """A cluster, and the controller that looks after all its runs."""

    def __init__(self, flavour: str, number: int) -> None:
        from testbed import clusters

        profiles = [word for name in ("two-nodes", *FLAVOURS[flavour]) for word in ("--profile", name)]
        self._open = grounds.cluster(f"storm-{flavour}-{number}", *profiles)
        self.ground = self._open.__enter__()
        self.flavour = flavour
        self.cluster = clusters.get(self.ground.name)
        self.players = 0
        self.lock = threading.Lock()
        """One part is away at a time."""
        self.controller = self._controller()

    def _controller(self) -> subprocess.Popen[bytes]:
        log = open(self.ground.folder / "controller.log", "ab")
        command = [sys.executable, "-m", "longboat", "controller", "--lease", "default"]
        return subprocess.Popen(command, env=self.ground.environment, stdout=log, stderr=log)

    def disturb(self, kind: str) -> None:
        from testbed import faults

        cables = {"partition": faults.cut_off, "loss": faults.lossy, "delay": faults.delayed}
        with self.lock:
            if kind in ("controller", "gate holder"):
                # Whoever serves the gate holds it for moments only: mostly the controller, which is killed as it does.
                self.controller.kill()
                self.controller.wait()
                self.controller = self._controller()
            elif kind in cables:
                with cables[kind](self.cluster, 1):
                    time.sleep(CUT_S)
            else:
                part = "node-1-kubelet" if kind == "kubelet" else kind
                faults.kill(self.cluster, part)
                self._start(part)

    def _start(self, part: str) -> None:
        """Without it no other episode would go on."""
        from testbed import faults

        for is_last in (False, True):
            try:
                faults.start(self.cluster, part)
                return
            except TestbedError:
                if is_last:
                    raise

    def close(self) -> None:
        self.controller.kill()
        self.controller.wait()
        self._open.__exit__(None, None, None)


_towns: list[Town] = []
_choosing = threading.Lock()


def prepare(flavour: str, count: int) -> None:
    """So many clusters of this flavour."""
    atexit.register(close)
    with ThreadPoolExecutor(count) as makers:
        for town in makers.map(lambda number: Town(flavour, number), range(count)):
            _towns.append(town)


@contextlib.contextmanager
def emptiest() -> Iterator[Town]:
    """The cluster with the fewest episodes."""
    with _choosing:
        town = min(_towns, key=lambda each: each.players)
        town.players += 1
    try:
        yield town
    finally:
        with _choosing:
            town.players -= 1


class PodEpisode(PlayedEpisode):
    keeps_dead = False

    def __init__(self, episode: Episode, folder: Path, command_s: float, town: Town) -> None:
        super().__init__(episode, folder, command_s)
        self.town = town
        self.namespace = f"storm-{secrets.token_hex(4)}"
        self.storage = folder / "storage"
        for path in (self.storage, self.home):
            path.mkdir()
            path.chmod(0o777)
        folder.chmod(0o755)
        settings = {"image": grounds.PYTHON_IMAGE, "allow_host_paths": True, "storage": {"path": str(self.storage)}}
        settings |= {"namespace": self.namespace}
        settings |= {"queue": self.namespace} if town.flavour == "kueue" else {}
        (self.home / "config.yaml").write_text(json.dumps({"engine": "kubernetes", "kubernetes": settings}))
        self.environment |= {"KUBECONFIG": self.town.ground.environment["KUBECONFIG"]}
        self.notices: list[str] = []
        self.engine: KubernetesEngine = KubernetesEngine(
            namespace=self.namespace, environment=self.environment, on_notice=self.notices.append
        )
        client = self.engine.client
        body = {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": self.namespace}}
        until(lambda: self.calm(lambda: client.apply(body)), "there is a namespace")
        account = lambda: client.find(SERVICE_ACCOUNT, "default")  # noqa: E731
        until(lambda: self.calm(account), "the namespace has its account")
        if town.flavour == "kueue":
            self.in_queue(lambda server, body: server.apply([body]))
        self.write_job("/witness", volumes={"/witness": {"path": str(self.witness.folder)}}, cpus=0.05, gpus=0)

    def in_queue(self, act: Callable[[api.Api, dict[str, Any]], object]) -> None:
        """The objects of the episode's queue, made or removed while others may kill the API server."""
        for body in kueue.queue(self.namespace, self.namespace, QUOTAS):

            def is_done(body: dict[str, Any] = body) -> bool:
                with contextlib.closing(api.Api(self.town.cluster)) as server:
                    try:
                        act(server, body)
                    except (OSError, HTTPException, TestbedError):
                        return False
                    return True

            until(is_done, f"the queue's {body['kind']}")

    @staticmethod
    def calm(ask: Any) -> Any:
        """Nothing while the API server is away."""
        try:
            return ask()
        except LongboatError:
            return None

    def look(self) -> RunStatus:
        """The server may be away for a moment: other episodes kill it."""
        answers: list[RunStatus] = []

        def ask() -> bool:
            status = self.calm(lambda: self.engine.status(self.run_name))
            answers.extend([status] if status is not None else [])
            return bool(answers)

        until(ask, "the status can be read")
        if not answers[0].is_final:  # its last step may be one of an earlier attempt: a killed launcher leaves no word
            self.seen.append((answers[0].attempt, answers[0].step))
        return answers[0]

    def rank_pid(self, attempt: int, rank: int) -> int | None:
        uid = self.look().uid
        for pid in processes("LONGBOAT_RUN_UID", uid):
            with contextlib.suppress(OSError):
                variables = (Path(f"/proc/{pid}/environ")).read_bytes().split(b"\0")
                wanted = {f"RANK={rank}".encode(), f"LONGBOAT_ATTEMPT={attempt}".encode()}
                if wanted <= set(variables) and b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return None

    def victim(self, kind: str, attempt: int, at: int) -> int | None:
        pid = self.rank_pid(attempt, at)
        return pid if pid is None or kind == "rank" else parent(pid)

    def hit(self, kind: str, attempt: int, at: int) -> bool:
        if kind != "pod":
            return super().hit(kind, attempt, at)
        index = str(at // self.episode.procs)
        for pod in self.engine.client.list(POD, labels=names.pods_of(self.run_name)).items:
            labels = pod["metadata"]["labels"]
            is_alive = pod["status"].get("phase") == "Running"
            if is_alive and labels.get("batch.kubernetes.io/job-completion-index") == index:
                self.engine.client.delete(POD, pod["metadata"]["name"], grace_s=0)
                return True
        return False

    def disturb(self, kind: str) -> None:
        self.town.disturb(kind)

    def check_place(self, status: RunStatus) -> None:
        with self.waited("a process of the run is left"):
            until(lambda: not processes("LONGBOAT_RUN_UID", status.uid), "its processes are gone", 90.0)
        with self.waited("pods go on after the end", self.living_pods):
            until(lambda: not self.living_pods(), "its pods have ended", 90.0)

    def living_pods(self) -> list[str]:
        """Those whose kubelet has not said yet that they have ended."""
        answer = self.calm(lambda: self.engine.client.list(POD))
        bodies = [] if answer is None else answer.items
        ended = ("Succeeded", "Failed")
        living = [body["metadata"]["name"] for body in bodies if body["status"].get("phase") not in ended]
        return living if answer is not None else ["not to be listed now"]

    def checkpoints(self, status: RunStatus) -> Path:
        folders = sorted({path.parent for path in self.storage.rglob("step-*")})
        return folders[0] if folders else Path("/nowhere")

    def left(self) -> list[str]:
        objects = []
        of_flavour = {"jobset": (JOBSET,), "kueue": (WORKLOAD,)}.get(self.town.flavour, ())
        for kind in (*MADE, *of_flavour):
            answer = self.calm(lambda kind=kind: self.engine.client.list(kind))
            if answer is None:
                return [f"{kind.kind}: not to be listed now"]
            objects += [(kind.kind, body["metadata"]["name"]) for body in answer.items]
        gate = {(LEASE.kind, GATE)}
        files = [str(path) for path in self.storage.rglob("*") if path.is_file()]
        return [*(f"{kind} {name}" for kind, name in objects if (kind, name) not in KEPT | gate), *files]

    def read_log(self) -> list[LogLine]:
        """Others may have cut off a node or killed a server: what cannot be read now is read a moment later."""
        lines: list[LogLine] = []

        def is_whole() -> bool:
            self.notices.clear()
            with contextlib.suppress(LongboatError):
                lines[:] = super(PodEpisode, self).read_log()
                return not any("cannot be read" in notice for notice in self.notices)
            return False

        with self.waited("its log cannot be read", lambda: self.notices):
            until(is_whole, "its log can be read", 90.0)
        return lines

    def keep(self) -> None:
        """What the cluster has of the run, its storage, and the controller's log."""
        kept = self.folder / "kept"
        kept.mkdir(exist_ok=True)
        for kind in SHOWN:
            answer = self.calm(lambda kind=kind: self.engine.client.list(kind))
            bodies = [] if answer is None else answer.items
            (kept / f"{kind.plural}.json").write_text(json.dumps(bodies, indent=1))
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(self.storage, kept / "storage", dirs_exist_ok=True)
            shutil.copy(self.town.ground.folder / "controller.log", kept)

    def end_all(self) -> None:
        with contextlib.suppress(LongboatError):
            uid = self.engine.status(self.run_name).uid
            for pid in processes("LONGBOAT_RUN_UID", uid):
                kill(pid)
        with contextlib.suppress(LongboatError):
            self.engine.client.delete(NAMESPACE, self.namespace)
        if self.town.flavour == "kueue":
            with contextlib.suppress(NeverHappened):
                self.in_queue(lambda server, body: server.delete(api.path_of_object(body)))
        self.engine.close()


def living() -> dict[str, int]:
    """Processes that live through all episodes, or are started again."""
    return {f"controller of {town.ground.name}": town.controller.pid for town in _towns}


def close() -> None:
    while _towns:
        _towns.pop().close()


def play(episode: Episode, folder: Path, command_s: float) -> tuple[Counter[str], list[str]]:
    folder.parent.chmod(0o755)
    with emptiest() as town:
        played = PodEpisode(episode, folder, command_s, town)
        try:
            played.play()
        except NeverHappened as error:
            played.complaints.append(str(error))
        finally:
            played.end_all()
        return played.kills, played.complaints
