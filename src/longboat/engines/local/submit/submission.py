"""Submission of a run, up to its folder: preflight, code, name, record. Nothing is visible until all of it is
written."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from longboat.bundles import durable
from longboat.bundles.manifests import CodeSnapshot
from longboat.core.errors import EngineError, NotFound
from longboat.core.jobs import Job
from longboat.core.runs import RunStatus
from longboat.engines.engine import Submission
from longboat.engines.lifecycle.predecessors import Predecessor, predecessors_of
from longboat.engines.local.containers.choice import ContainerChoice
from longboat.engines.local.records import KEPT_VARIABLES, LocalRecord, LocalState
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.settings import Isolation
from longboat.engines.shared.checkpoint_store import COMPLETE, resume_address
from longboat.engines.shared.code_snapshot import checkpoint_folder, code_folder, with_absolute_secrets
from longboat.engines.shared.files import (
    disk,
    find_program,
    locked,
    make_folder,
    new_lock,
    remove_tree,
    write_bytes,
)
from longboat.engines.shared.home import Home, current_user, numbered_names
from longboat.storage.urls import is_object_url, run_url


def record_of(
    home: Home,
    submission: Submission,
    *,
    name: str,
    snapshot: CodeSnapshot | None,
    containers: ContainerChoice | None = None,
    gpu_isolation: Isolation = "auto",
) -> LocalRecord:
    job = with_absolute_secrets(submission)
    environment = submission.environment
    uid = os.urandom(6).hex()
    checkpoints = _own_checkpoint_dir(home, submission, name, uid)
    return LocalRecord(
        name=name,
        uid=uid,
        job=job,
        base=submission.base,
        created=time.time(),
        user=current_user(),
        bundle=snapshot.hash if snapshot else None,
        commit=snapshot.commit if snapshot else None,
        dirty=bool(snapshot and snapshot.dirty),
        environment={key: environment[key] for key in KEPT_VARIABLES if key in environment},
        path_append=_path_append(home, environment),
        checkpoint_dir=str(checkpoints),
        made_folder=_made_folder(home, checkpoints),
        checkpoint_store=_store_of(job, name, uid),
        resume_from=_resume_from(home, submission),
        outside=snapshot.outside if snapshot else {},
        root=snapshot.root if snapshot else "",
        python_folders=_python_folders(job, snapshot, environment) if snapshot else (),
        in_place=str(code_folder(submission)) if submission.in_place else None,
        after=_predecessors(home, job),
        containers=containers.program if containers else None,
        gpu_isolation=gpu_isolation,
        mounts=containers.mounts if containers else {},
    )


def _python_folders(job: Job, snapshot: CodeSnapshot, environment: Mapping[str, str]) -> tuple[str, ...]:
    from longboat.engines.local.submit.editable_installs import source_folders

    paths = {entry.path for entry in snapshot.entries}
    return source_folders(snapshot.root, job.setup, paths, environment)


def checkpoint_dir(home: Home, submission: Submission, name: str) -> Path:
    """Where this run keeps its checkpoints: a folder of its own, outside of the run folder."""
    to = checkpoint_folder(submission.job)
    parent = home.root / "checkpoints" if to is None else Path(submission.base) / os.path.expanduser(to)
    return Path(os.path.abspath(parent)) / name


def _own_checkpoint_dir(home: Home, submission: Submission, name: str, uid: str) -> Path:
    """A removed run of the same id leaves its checkpoints: this run does not begin with them."""
    folder = checkpoint_dir(home, submission, name)
    if not folder.exists():
        return folder
    from longboat.storage.checkpoints import newest_complete

    return folder if newest_complete(folder) is None else folder.with_name(f"{name}-{uid[:8]}")


def _made_folder(home: Home, folder: Path) -> str | None:
    """The topmost folder of this path that is not there yet; those in our own home are ours in any case."""
    if folder.parent == home.root / "checkpoints":
        return str(folder.parent)
    missing = [str(path) for path in (folder, *folder.parents) if not path.exists()]
    return missing[-1] if missing else None


def _store_of(job: Job, name: str, uid: str) -> str | None:
    to = job.checkpoints.to
    return run_url(to, f"{name}-{uid[:8]}") if to is not None and is_object_url(to) else None


def free_name(home: Home, submission: Submission) -> str:
    """The first free of NAME, NAME-2, NAME-3, ...; a name whose checkpoints are still there is not free."""
    return next(
        name
        for name in numbered_names(submission.job.name)
        if not (home.runs / name).exists() and not checkpoint_dir(home, submission, name).exists()
    )


def make_claims(home: Home, job: Job) -> None:
    """Claims with a size exist from their first use on, as in a cluster; they stay when the run is removed."""
    for volume in job.volumes:
        if volume.path is not None and Path(volume.path).parent == home.root / "claims":
            make_folder(Path(volume.path))


def take_number(home: Home) -> int:
    """The next number of the queue. A run takes it when it is submitted, so its place outlives its supervisor."""
    folder = home.folder("queue")
    with locked(folder / ".lock"):
        counter = folder / ".next"
        boot = durable.boot_id() or ""
        try:
            written_in, _, text = counter.read_text().rpartition(" ")
            number = int(text)
        except (OSError, ValueError):
            written_in, number = None, 1
        if written_in != boot:  # it is not synced: what an earlier boot left may be too small, or nothing at all
            number = max([number, *_next_numbers(home)])
        write_bytes(counter, f"{boot} {number + 1}".encode())
    return number


def _next_numbers(home: Home) -> Iterator[int]:
    """After each of the runs. One that is just removed, or cannot be read, keeps nobody from submitting."""
    for name in home.run_names():
        with contextlib.suppress(EngineError, NotFound):
            yield RunFiles(home.runs / name).record().number + 1


def create_run(home: Home, record: LocalRecord, diff: bytes | None) -> tuple[RunFiles, int] | None:
    """Make the run folder at once, with its supervisor lock held. None when the name was taken meanwhile."""
    temporary = home.runs / f".new-{record.uid}"
    make_folder(temporary)
    try:
        files = RunFiles(temporary)
        lock = new_lock(files.lock)
        # Once submitted, a run is there, also after a power loss: its files, then its folder, then its name.
        make_folder(files.artifacts)
        if diff:
            write_bytes(temporary / "code.diff", diff, is_durable=True)
        files.write_state(LocalState(reason="is being started"))
        files.write_record(msgspec.structs.replace(record, number=take_number(home)))
        target = home.runs / record.name
        try:
            with disk(f"create {target}"):
                os.rename(temporary, target)
                durable.sync_folder(os.fspath(home.runs))
        except Exception:
            os.close(lock)
            if target.exists():
                return None
            raise
        return RunFiles(target), lock
    finally:
        if temporary.exists():
            remove_tree(temporary)


def _resume_from(home: Home, submission: Submission) -> str | None:
    wanted = submission.job.checkpoints.resume
    if wanted is None:
        return None
    from longboat.storage.checkpoints import checkpoint_at
    from longboat.storage.inventory.entries import named_checkpoint

    address = resume_address(wanted)
    if address is not None:
        return address
    named = named_checkpoint(wanted)
    if named is not None:
        return _resume_from_step(home, submission, *named)
    folder, store = Path(submission.base) / os.path.expanduser(wanted), None
    record = _run_to_resume(home, wanted)
    if record is not None:
        folder, store = Path(record.checkpoint_dir), record.checkpoint_store
    newest = checkpoint_at(folder)
    if newest is None and store is not None:
        return store
    if newest is None:
        raise NotFound(f"no complete checkpoint to resume from in {folder}", hint=COMPLETE)
    return str(newest)


def _resume_from_step(home: Home, submission: Submission, run: str, step: str) -> str:
    from longboat.engines.local.submit.checkpoint_place import open_place
    from longboat.storage.inventory.entries import choose

    place = open_place(home, run, submission.environment)
    entry = choose(place.entries(), step, run)
    return f"{place.where}/{entry.name}"


def _run_to_resume(home: Home, name: str) -> LocalRecord | None:
    """The run of this name, also one that was removed and left its checkpoints."""
    with contextlib.suppress(NotFound):
        return RunFiles(home.run_dir(name)).record()
    from longboat.engines.local.removal import left_by

    return left_by(home, name)


def _predecessors(home: Home, job: Job) -> tuple[Predecessor, ...]:
    if not job.after:
        return ()
    from longboat.engines.local.status import brief_status

    def status_of(run: str) -> RunStatus:
        files = RunFiles(home.run_dir(run))
        return brief_status(files.record(), files.state())

    return predecessors_of(job, status_of)


def _path_append(home: Home, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Folders after PATH, for a `python` where the user's own PATH has none. What the user's PATH has is never hidden.

    Longboat may be installed in an environment of its own (pipx, a full path to its program): its Python is not the
    user's, and the trainer's packages are not in it.
    """
    path = environment.get("PATH", os.defpath)
    if find_program("python", path) is not None:
        return ()
    if find_program("python3", path) is None:
        return (os.path.dirname(sys.executable),)  # no Python at all: better ours than none
    shim = home.folder("shims") / "python"
    if not shim.exists():
        write_bytes(shim, b'#!/bin/sh\nexec python3 "$@"\n')
        shim.chmod(0o700)
    return (str(shim.parent),)
