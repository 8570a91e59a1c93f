"""Pods for a test: folders as a pod has them, a gang file, and a real launcher for each, as plain processes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.launcher.nodes import LAUNCHER, PATIENCE_S, end_all, survivors, until

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STOPPABLE = """
import os, signal, sys, time
def leave(*_):
    print('leaves', flush=True)
    sys.exit(3 if os.environ['RANK'] == '1' else 0)
signal.signal(signal.SIGTERM, leave)
print('up', flush=True)
time.sleep(600)
"""


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def pack(objects: Mapping[str, bytes]) -> bytes:
    """A pack of the given members, whatever their names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in objects.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def code_of(files: Mapping[str, str]) -> tuple[dict[str, Any], bytes]:
    """The code part of a gang file and its one pack."""
    data = {path: text.encode() for path, text in files.items()}
    entries = [[path, "file", digest(content), path.endswith(".sh"), ""] for path, content in data.items()]
    return {"entries": entries, "packs": 1}, pack({digest(content): content for content in data.values()})


JOB_S = 10.0  # until the controller of Jobs deletes the other pods of one that has failed


class Pods:
    """A gang of launchers on this machine. `roles`: name -> number of nodes, in their order."""

    def __init__(
        self,
        folder: Path,
        command: str | Sequence[str] = ("python", "train.py"),
        *,
        roles: Mapping[str, int] | None = None,
        procs: int = 1,
        script: str = "",
        commands: Mapping[str, Any] | None = None,
        plan: Mapping[str, Any] | None = None,
        line: Mapping[str, Any] | None = None,
        spares: int = 0,
        **keys: Any,
    ) -> None:
        self.folder = folder
        self.uid = uuid.uuid4().hex
        roles = roles or {"worker": 1}
        names = [(role, index) for role, count in roles.items() for index in range(count)]
        self.names = [f"{role}-{index}" for role, index in names]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.roots: dict[int, Path] = {}  # of pods that took the place of others
        code, self.pack = code_of({"train.py": script, "tools/run.sh": "#!/bin/sh\necho ran\n"})
        nodes = []
        for place, (role, index) in enumerate(names):
            first = place * procs
            ranks = [{"rank": first + n, "local_rank": n, "env": {"RANK": str(first + n)}} for n in range(procs)]
            address = f"127.0.0.{place + 2}"
            env = {"NODE_RANK": str(place), "SHARED": str(folder)}
            nodes.append({"role": role, "index": index, "address": address, "env": env, "ranks": ranks})
        self.gang: dict[str, Any] = {
            "version": 1,
            "plan": {"run": "tests", "uid": self.uid, "attempt": 0, "setup": None, "grace_s": 20, "stall_s": None}
            | {"unset": ["LONGBOAT_*"]}
            | dict(plan or {}),
            "roles": {
                role: {"command": (commands or {}).get(role, command), "env": {"WORLD": str(len(names) * procs)}}
                for role in roles
            },
            "nodes": nodes,
            "rank_env": {"OF_ALL": "1"},
            "deciding": list(roles),
            "timeout_s": None,
            "code": code,
            "data": [],
            "links": {},
            "checkpoints": {"dir": str(folder / "checkpoints"), "keep": 3, "resume": None},
            "artifacts": {"dir": str(folder / "artifacts"), "patterns": []},
            "keep": None,
            "line": {"port": free_port("127.0.0.2"), **(line or {})},
            **keys,
        }
        last = names[-1]
        for place in range(len(names), len(names) + spares):  # of the last role
            index, address = last[1] + 1 + place - len(names), f"127.0.0.{place + 2}"
            spare = {"role": last[0], "index": index, "address": address, "env": {"SHARED": str(folder)}}
            self.gang.setdefault("spares", []).append(spare)
            self.names.append(f"{last[0]}-{index}")

    def root(self, place: int) -> Path:
        return self.roots.get(place, self.folder / f"pod-{place}")

    def node(self, place: int) -> Path:
        return self.root(place) / "node"

    def make(self, place: int, gang: Mapping[str, Any] | None = None, packs: Sequence[bytes] | None = None) -> None:
        root = self.root(place)
        for name in ("gang", "code"):
            (root / name).mkdir(parents=True, exist_ok=True)
        given = {**self.gang, "termination": str(root / "termination"), **(gang or {})}
        (root / "gang" / "gang").write_bytes(gzip.compress(json.dumps(given).encode(), 1))
        (root / "gang" / "token").write_text(self.uid + "-token")
        for number, data in enumerate([self.pack] if packs is None else packs):
            (root / "code" / str(number)).write_bytes(data)

    def start(
        self,
        place: int,
        *,
        launcher: Path = LAUNCHER,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        **make: Any,
    ) -> subprocess.Popen[bytes]:
        self.make(place, **make)
        role, _, index = self.names[place].rpartition("-")
        with open(self.root(place) / "stdout", "wb") as out, open(self.root(place) / "stderr", "wb") as err:
            self.processes[place] = subprocess.Popen(
                [python, "-I", "-S", str(launcher), "--pod", str(self.root(place)), role],
                env={**os.environ, "JOB_COMPLETION_INDEX": index, **(env or {})},
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        return self.processes[place]

    def start_all(self, **start: Any) -> None:
        for place in range(len(self.names)):
            self.start(place, **start)

    def wait(self, place: int = 0) -> int:
        return self.processes[place].wait(timeout=PATIENCE_S)

    def run(self, **start: Any) -> list[int]:
        """All nodes to their ends; their exit codes. When node 0 has failed, the others are deleted as by their Job."""
        self.start_all(**start)
        if self.wait(0):
            for process in self.processes.values():
                try:
                    process.wait(timeout=JOB_S)
                except subprocess.TimeoutExpired:
                    process.terminate()
        return [self.wait(place) for place in range(len(self.names))]

    def message(self, place: int = 0) -> Any:
        return json.loads((self.root(place) / "termination").read_text())

    @property
    def verdict(self) -> Any:
        return self.message()["gang"]

    def json(self, place: int, name: str) -> Any:
        return json.loads((self.node(place) / name).read_text())

    def beat(self, place: int) -> Any:
        """What the node said last; nothing before it has said anything."""
        return self.json(place, "beat.json") if (self.node(place) / "beat.json").exists() else {}

    def report(self, place: int, rank: int) -> Any:
        return self.json(place, f"rank-{rank}.json")

    def log(self, place: int, name: str) -> str:
        path = self.node(place) / "logs" / name
        return path.read_text(errors="replace") if path.exists() else ""

    def stdout(self, place: int = 0) -> str:
        return (self.root(place) / "stdout").read_text()

    def stderr(self, place: int = 0) -> str:
        return (self.root(place) / "stderr").read_text()

    def until(self, condition: Callable[[], Any]) -> Any:
        return until(
            condition, told=lambda: f"did not happen; launchers said: {[self.stderr(one) for one in self.processes]}"
        )

    def until_said(self, text: str, places: Sequence[int] | None = None) -> None:
        """Every rank of these nodes has written the text."""
        for place in places if places is not None else range(len(self.names)):
            for rank in self.gang["nodes"][place]["ranks"]:
                self.until(lambda place=place, rank=rank: text in self.log(place, f"{rank['rank']}.out"))

    def tell(self, place: int, *words: str) -> int:
        command = [sys.executable, "-I", "-S", str(LAUNCHER), "--tell", str(self.node(place)), *words]
        return subprocess.run(command, check=False, capture_output=True).returncode

    def survivors(self) -> list[int]:
        return survivors(self.uid)

    def close(self) -> None:
        end_all(self.processes.values(), self.uid)
        shutil.rmtree(self.folder, ignore_errors=True)


class Relay:
    """A TCP relay in front of node 0 that can be cut: connections break, and come to nothing until it is mended."""

    def __init__(self, target: tuple[str, int]) -> None:
        import threading

        self._target = target
        self._pairs: list[socket.socket] = []
        self._is_cut = False
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        import threading

        while True:
            try:
                near, _ = self._listener.accept()
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                if self._listener.fileno() < 0:
                    return
                near.close()
                continue
            far.settimeout(None)
            self.connections += 1
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self) -> None:
        self._is_cut = True
        for end in self._pairs:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._pairs = []

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self._listener.close()
        self.cut()


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    (path / ".complete").write_text("{}")
    return path
