"""Episodes on the Kubernetes engine: real pods on two nodes of the test cluster, whose parts are killed as well.

The nodes share this machine, so that ranks and launchers are processes that can be found and killed here. One cluster
for all episodes; each has a namespace of its own. Our controller looks after all of them, as a process that is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grounds
from longboat.core.errors import LongboatError
from longboat.core.runs import RunStatus
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, LEASE, NAMESPACE, PDB, POD, SECRET, SERVICE, SERVICE_ACCOUNT
from longboat.kubeapi.leases import GATE
from storm_episode import PlayedEpisode, kill, parent, processes
from storm_plan import Episode
from storm_trainer import NeverHappened, until

KINDS = ("rank", "launcher", "pod", "exit")
PARTS = ("apiserver", "kubelet", "controller", "gate holder", "partition", "loss")
PARTITION_S = 5.0
"""Shorter than a member of the gang or a node is given up."""
KEPT = {(CONFIG_MAP.kind, "kube-root-ca.crt")}


class Town:
    """The cluster, and the controller that looks after all its runs."""

    def __init__(self) -> None:
        from testbed import clusters

        self._open = grounds.cluster("storm-pods", "--profile", "two-nodes")
        self.ground = self._open.__enter__()
        atexit.register(self.close)
        self.cluster = clusters.get(self.ground.name)
        self.lock = threading.Lock()
        """One part is away at a time."""
        self.controller = self._controller()

    def _controller(self) -> subprocess.Popen[bytes]:
        log = open(self.ground.folder / "controller.log", "ab")
        command = [sys.executable, "-m", "longboat", "controller", "--lease", "default"]
        return subprocess.Popen(command, env=self.ground.environment, stdout=log, stderr=log)

    def disturb(self, kind: str) -> None:
        from testbed import faults

        with self.lock:
            if kind in ("controller", "gate holder"):
                # Whoever serves the gate holds it for moments only: mostly the controller, which is killed as it does.
                self.controller.kill()
                self.controller.wait()
                self.controller = self._controller()
            elif kind == "partition":
                with faults.cut_off(self.cluster, 1):
                    time.sleep(PARTITION_S)
            elif kind == "loss":
                with faults.lossy(self.cluster, 1):
                    time.sleep(PARTITION_S)
            else:
                part = "node-1-kubelet" if kind == "kubelet" else kind
                faults.kill(self.cluster, part)
                faults.start(self.cluster, part)

    def close(self) -> None:
        atexit.unregister(self.close)
        self.controller.kill()
        self.controller.wait()
        self._open.__exit__(None, None, None)


_town: list[Town] = []
_making = threading.Lock()


def town() -> Town:
    with _making:
        if not _town:
            _town.append(Town())
    return _town[0]


class PodEpisode(PlayedEpisode):
    def __init__(self, episode: Episode, folder: Path, command_s: float) -> None:
        super().__init__(episode, folder, command_s)
        self.town = town()
        self.namespace = f"storm-{secrets.token_hex(4)}"
        self.storage = folder / "storage"
        for path in (self.storage, self.home):
            path.mkdir()
            path.chmod(0o777)
        folder.chmod(0o755)
        settings = {"image": grounds.PYTHON_IMAGE, "allow_host_paths": True, "storage": {"path": str(self.storage)}}
        settings |= {"namespace": self.namespace}
        (self.home / "config.yaml").write_text(json.dumps({"engine": "kubernetes", "kubernetes": settings}))
        self.environment |= {"KUBECONFIG": self.town.ground.environment["KUBECONFIG"]}
        self.engine: KubernetesEngine = KubernetesEngine(namespace=self.namespace, environment=self.environment)
        client = self.engine.client
        body = {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": self.namespace}}
        until(lambda: self.calm(lambda: client.apply(body)), "there is a namespace")
        account = lambda: client.find(SERVICE_ACCOUNT, "default")  # noqa: E731
        until(lambda: self.calm(account), "the namespace has its account")
        self.write_job("/witness", volumes={"/witness": {"path": str(self.witness.folder)}}, cpus=0.05, gpus=0)

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
        for kind in (CONFIG_MAP, SECRET, SERVICE, POD, JOB, LEASE, PDB):
            answer = self.calm(lambda kind=kind: self.engine.client.list(kind))
            if answer is None:
                return [f"{kind.kind}: not to be listed now"]
            objects += [(kind.kind, body["metadata"]["name"]) for body in answer.items]
        gate = {(LEASE.kind, GATE)}
        files = [str(path) for path in self.storage.rglob("*") if path.is_file()]
        return [*(f"{kind} {name}" for kind, name in objects if (kind, name) not in KEPT | gate), *files]

    def end_all(self) -> None:
        with contextlib.suppress(LongboatError):
            uid = self.engine.status(self.run_name).uid
            for pid in processes("LONGBOAT_RUN_UID", uid):
                kill(pid)
        with contextlib.suppress(LongboatError):
            self.engine.client.delete(NAMESPACE, self.namespace)
        self.engine.close()


def living() -> dict[str, int]:
    """Processes that live through all episodes, or are started again."""
    return {"controller": _town[0].controller.pid} if _town else {}


def close() -> None:
    if _town:
        _town.pop().close()


def play(episode: Episode, folder: Path, command_s: float) -> tuple[Counter[str], list[str]]:
    folder.parent.chmod(0o755)
    played = PodEpisode(episode, folder, command_s)
    try:
        played.play()
    except NeverHappened as error:
        played.complaints.append(str(error))
    finally:
        played.end_all()
    return played.kills, played.complaints
