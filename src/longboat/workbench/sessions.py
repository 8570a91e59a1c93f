"""Sessions of workbench runs: is the server of a run ready, and where is it? Read from the node's own folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from longboat.core.errors import EngineError, LongboatError, NotFound, Refused, UsageError
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Job, Value
from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.engine import Engine
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.local.engine import LocalEngine
from longboat.engines.shared.home import current_user
from longboat.kubeapi.errors import ApiError
from longboat.workbench.jobs import KIND_LABEL

FILE = "workbench/session.json"
FIRST_LOOK_S, LOOK_S = 0.05, 0.5
"""A board is up in a second; a pod, an image, a queue take longer, and each look costs an API server something."""
MOST_BYTES = 1 << 16  # of a session's file: some hundred bytes, which whoever runs there can write
SAID = b"longboat: "


class BenchSession(Value, frozen=True):
    """What the server of a run says of itself."""

    kind: str
    launcher: tuple[str, ...]  # the command that starts the launcher there
    folder: str = ""  # of the node, as the run sees it
    port: int = 0
    token: str = ""
    path: str = "/"
    user: str = ""  # that the server runs as; empty: it has no name there
    pod: tuple[str, str] | None = None  # namespace and name: where it was read, never what it says

    def url(self, port: int) -> str:
        return self.url_at(f"127.0.0.1:{port}")

    def url_at(self, host: str) -> str:
        query = f"?token={self.token}" if self.token else ""
        return f"http://{host}{self.path}{query}"


def read_session(engine: Engine, run: RunStatus) -> BenchSession | None:
    """None until it is ready, and for one that leads elsewhere."""
    content, folder, pod = _read(engine, run)
    if content is None:
        return None
    try:
        session = decode(content, BenchSession)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return msgspec.structs.replace(session, folder=folder, pod=pod) if is_sound(session) else None


def is_sound(session: BenchSession) -> bool:
    """Whether its URL leads to its port here and nowhere else: whoever runs there can write the file."""
    is_text = all(text.isascii() and text.isprintable() for text in (session.path, session.token))
    return is_text and 0 <= session.port < 1 << 16 and session.path[:1] == "/" and session.path[:2] != "//"


def _read(engine: Engine, run: RunStatus) -> tuple[bytes | None, str, tuple[str, str] | None]:
    if isinstance(engine, LocalEngine):
        return (*_read_here(engine, run), None)
    assert isinstance(engine, KubernetesEngine)
    from longboat.engines.kubernetes.manifests.volumes import NODE
    from longboat.workbench.pods import read_node_file

    with contextlib.suppress(NotFound, ApiError):
        content, pod = read_node_file(engine.client, run.name, FILE, MOST_BYTES)
        return content, NODE, pod
    return None, NODE, None


def _read_here(engine: LocalEngine, run: RunStatus) -> tuple[bytes | None, str]:
    from longboat.engines.local.runfiles import RunFiles

    files = RunFiles(engine.home.run_dir(run.name))
    if not files.is_own():
        raise UsageError(f"{run.name} is a run of another user", hint="only its owner opens it")
    for path in sorted(files.attempt_dir(run.attempt).glob(f"*/{FILE}")):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            return file.read(MOST_BYTES), str(Path(path).parents[1])
    return None, ""


def open_runs(engine: Engine, kind: str) -> list[RunStatus]:
    """Runs of this kind that the caller submitted from here and that have not ended, newest first."""
    listed = [run for run in engine.list() if run.labels.get(KIND_LABEL) == kind and not run.is_final]
    return [run for run in listed if run.user == current_user() and is_from_here(engine, run)]


def is_from_here(engine: Engine, run: RunStatus) -> bool:
    """Whether this home submitted it. What a record in a cluster says of its user is anybody's word, and nobody is to
    type into a notebook that somebody else has put in the place of his."""
    try:
        engine.resubmission(run.name)
    except LongboatError:
        return False
    return True


def check_from_here(engine: Engine, run: RunStatus) -> None:
    """Raise Refused for a run that this home did not submit."""
    if not is_from_here(engine, run):
        raise Refused(f"{run.name} was not submitted from here", hint="only where it was submitted it is opened")


def spec_of(run: RunStatus) -> Job:
    if run.spec is None:
        raise EngineError(f"the record of {run.name} is damaged", hint=f"longboat rm {run.name}")
    return run.spec


def wait_ready(engine: Engine, run: RunStatus, report: Callable[[str], None]) -> tuple[RunStatus, BenchSession]:
    """Wait until its server answers; `report` is told what it waits for. Raises EngineError when it ends before."""
    pause, said = FIRST_LOOK_S, ""
    while True:
        if run.phase == "running" and (session := read_session(engine, run)) is not None:
            return run, session
        if run.is_final:
            raise ended_early(engine, run)
        words = run.reason or run.phase
        if run.phase in ("pending", "starting") and words != said and pause >= LOOK_S:
            said = words
            report(f"{run.name}: {words}")
        time.sleep(pause)
        pause = min(pause * 1.5, LOOK_S)
        run = engine.status(run.name)


def ended_early(engine: Engine, run: RunStatus) -> EngineError:
    """Why a server never came up: its own last word, else the run's reason."""
    lines = [line.data.strip() for line in engine.logs(run.name, LogQuery(tail=20))]
    said = [line[len(SAID) :].decode(errors="replace") for line in lines if line.startswith(SAID)]
    reason = said[-1] if said else run.reason or f"it {run.phase}"
    return EngineError(f"{run.name} ended before it was ready: {reason}", hint=f"longboat logs {run.name}")
