"""Inputs and outputs of an attempt: volumes, data, environments, checkpoints, artifacts."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.bundles import durable
from longboat.bundles.manifests import CodeSnapshot
from longboat.core.errors import EngineError, LongboatError
from longboat.core.jobs import DataImport
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise import short_tmpdir
from longboat.engines.local.supervise.attempt_folders import Environment
from longboat.engines.shared.files import copy, disk, make_folder, note_use, remove_tree, write_value
from longboat.engines.shared.home import Home
from longboat.engines.shared.retry_policy import InputFailed

if TYPE_CHECKING:
    from threading import Thread

    from longboat.engines.local.containers.attempt import AttemptContainers


class DataFailed(InputFailed):
    """A data import failed."""

    cause = "data"


class AttemptOutputs:
    """The lasting things of one run."""

    def __init__(self, home: Home, files: RunFiles, record: LocalRecord) -> None:
        self._home = home
        self._files = files
        self._record = record
        self._environment: Environment | None = None
        self._settling: Thread | None = None

    # into the attempt

    def links(self, report: Callable[[str], None]) -> dict[str, Path]:
        """Folders of this machine that appear in every working copy, by their place there. Imports data on the way."""
        links: dict[str, Path] = {}
        if self._record.in_place is not None:
            return links  # nothing is put into the user's own folder
        base = Path(self._record.base)
        for volume in self._record.job.volumes:
            if volume.scratch:
                links[volume.target] = make_folder(self._files.directory / "volumes" / _slug(volume.target))
            elif volume.path is not None and not os.path.isabs(volume.target):
                source = base / os.path.expanduser(volume.path)
                if not source.exists():
                    raise EngineError(f"volumes.{volume.target}: {source} does not exist", hint=f"mkdir -p {source}")
                links[volume.target] = source
        self._import_data(links, report)
        to = self._record.job.checkpoints.to if self._record.checkpoint_store is None else None
        if to is not None and not os.path.normpath(to).startswith(("/", "~", "..")):
            links[to] = Path(self._record.checkpoint_dir)
        return links

    def containers(
        self, attempt: int, report: Callable[[str], None], check: Callable[[], None]
    ) -> AttemptContainers | None:
        """Containers of the attempt, images pulled; None for a run without. `check` raises when the run is stopped."""
        if self._record.containers is None:
            return None
        from longboat.engines.local.containers.attempt import AttemptContainers

        containers = AttemptContainers(self._record, self._files, attempt)
        containers.provide(report, check)
        return containers

    def _import_data(self, links: dict[str, Path], report: Callable[[str], None]) -> None:
        if not self._record.job.data:
            return
        from longboat.storage.data import import_data
        from longboat.storage.progress import LIVE_S, reporter
        from longboat.storage.urls import file_name

        environment = self._variables()
        for item in self._record.job.data:
            label = f"imports {file_name(item.url)}"
            report(label)
            try:
                target = self._data_folder(item, links)
                import_data(item, target, environment=environment, progress=reporter(report, label, LIVE_S))
            except LongboatError as error:
                reason = f"{error.message}; {error.hint}" if error.hint else error.message
                raise DataFailed(reason, hint=error.hint) from error
            note_use(target)
        report("")

    def _data_folder(self, item: DataImport, links: dict[str, Path]) -> Path:
        """Where an import goes: into a volume, else into our home and, as a link, into every working copy."""
        from longboat.bundles.workdir import place_in

        here = {
            volume.target: Path(volume.target) for volume in self._record.job.volumes if volume.path == volume.target
        }
        for target, source in {**links, **here}.items():
            if Path(item.to).is_relative_to(target):
                return Path(place_in(str(source), os.path.relpath(item.to, target)))
        if os.path.isabs(item.to):
            raise EngineError(f"{item.to} lies neither in the working copy nor in a volume")
        folder = self._home.folder("data") / data_name(item)
        links[item.to] = folder
        return folder

    def _variables(self) -> dict[str, str]:
        """Environment with the credentials of object stores."""
        from longboat.engines.shared.checkpoint_store import own_variables
        from longboat.engines.shared.secrets import read_secrets

        job = self._record.job
        return {**os.environ, **own_variables(job), **read_secrets(self._home, job.secrets, os.environ)}

    def environment(self) -> Environment:
        setup = self._record.job.setup
        if setup is None or all(self._record.image_of(role.name) for role in self._record.job.roles):
            return Environment()
        from longboat.engines.local.supervise.environments import environment_name, prepare_environment

        snapshot = load_code(self._home, self._record)
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *self._record.path_append])
        # Noted before it is made: what it is called depends on a python that may be another one tomorrow.
        name = environment_name(setup, snapshot, path=path)
        if name is not None:
            write_value(self._files.environment, name, is_durable=True)
        self._environment = prepare_environment(self._home, setup, snapshot, path=path)
        return self._environment

    def note_setup_done(self) -> None:
        """Sync the environment in a thread: many thousand files take seconds, and the run must be watched."""
        if self._environment is not None and self._environment.marker is not None:
            import threading

            from longboat.engines.local.supervise.environments import settle_environment

            self._settling = threading.Thread(target=settle_environment, args=(Path(self._environment.marker),))
            self._settling.start()

    def resume_from(self, report: Callable[[str], None], attempt: int) -> str | None:
        """The newest complete checkpoint of this run, else the one it was told to begin with.

        What launchers of earlier attempts complete from now on does not count, should one have outlived its end.
        """
        from longboat.storage.urls import is_object_url

        folder, is_first = Path(self._record.checkpoint_dir), not attempt and self._record.checkpoint_store is None
        if is_first and self._record.resume_from is None and not folder.exists():
            return None
        from longboat.storage.checkpoints import begin_attempt, newest_complete
        from longboat.storage.fences import Fenced

        try:
            begin_attempt(folder, attempt, self._record.uid)
        except Fenced:
            raise
        except EngineError as error:  # a full disk is no reason not to go on: no other attempt runs, as far as we know
            report(error.message)
        own = newest_complete(folder)
        if self._record.checkpoint_store is not None:
            report("looks for its newest checkpoint")
            own = self._fetched(self._record.checkpoint_store, folder, own, attempt, as_launchers=True)
        wanted = self._record.resume_from
        if own is not None or wanted is None:
            return str(own) if own is not None else None
        if not is_object_url(wanted):
            return wanted
        report("fetches the checkpoint to begin with")
        path = self._fetched(wanted, self._files.directory / "resume", None)
        if path is None:
            raise EngineError(f"no complete checkpoint to resume from in {wanted}")
        return str(path)

    def _fetched(
        self, url: str, folder: Path, own: Path | None, attempt: int = 0, *, as_launchers: bool = False
    ) -> Path | None:
        """The newest of an object store and this machine. A store that fails is no reason not to use what is here.

        `as_launchers`: a launcher sends there what comes; credentials that it cannot have are told before it computes.
        """
        from longboat.storage.checkpoint_mirror import Mirror, fetch_checkpoint
        from longboat.storage.credentials.cloud_libraries import AS_LAUNCHERS

        environment = {**self._variables(), **({AS_LAUNCHERS: "1"} if as_launchers else {})}
        try:
            if attempt > 0:
                with contextlib.suppress(EngineError):  # a store that is only read; no other attempt runs here
                    Mirror(url, environment).begin_attempt(attempt, self._record.uid)
            return fetch_checkpoint(url, folder, environment)
        except LongboatError as error:
            if own is not None:
                return own
            reason = f"{error.message}; {error.hint}" if error.hint else error.message
            raise EngineError(f"checkpoints cannot be fetched: {reason}", hint=error.hint) from error

    def clear(self, attempt_dir: Path) -> None:
        """An attempt that never started its ranks is made anew."""
        remove_tree(attempt_dir)

    # out of it

    def collect(self, attempt_dir: Path) -> None:
        """Copy what `artifacts` names out of the working copies."""
        from longboat.bundles.workdir import find_artifacts

        for work in attempt_dir.glob("*/work"):
            for real, name in find_artifacts(os.fspath(work), self._record.job.artifacts):
                target = self._files.artifacts / work.parent.name / name
                copy(Path(real), target, below=self._files.artifacts)

    def sync_logs(self, attempt_dir: Path) -> None:
        """Logs and artifacts stay after the end, also when the power fails a moment later."""
        with disk(f"sync the logs in {attempt_dir}"):
            logs = [path for path in attempt_dir.glob("*/logs/*") if path.stat().st_size]
            durable.sync_files([os.fspath(path) for path in logs])
            folders = {os.fspath(folder) for path in logs for folder in tuple(path.parents)[:4]}
            for folder in sorted(folders, key=len, reverse=True):
                durable.sync_folder(folder)
            if any(self._files.artifacts.iterdir()):
                durable.sync_tree(os.fspath(self._files.artifacts))

    def prune(self, attempt: int | None = None) -> None:
        """Keep checkpoints to their number, while this attempt runs; None: the run has ended."""
        if self._record.checkpoint_store is not None and attempt is not None:
            return  # the launcher does, between two that it sends
        if _is_empty(self._record.checkpoint_dir):
            return
        from longboat.storage.checkpoints import prune
        from longboat.storage.retention import retention_of

        with contextlib.suppress(EngineError, OSError):
            prune(Path(self._record.checkpoint_dir), retention_of(self._record.job.checkpoints.rule), attempt)

    def discard(self, name: str) -> None:
        """Remove these folders (`work`, `scratch`) of attempts that are retried: only the last one keeps them."""
        for folder in self._files.directory.glob(f"attempts/*/*/{name}"):
            short_tmpdir.forget(folder, self._home.root)
            _remove(folder)

    def forget(self) -> None:
        """Remove scratch volumes and an unused checkpoint folder at the end of the run."""
        if self._settling is not None:
            self._settling.join()
        self.discard("scratch")
        _remove(self._files.directory / "volumes")
        if not _is_empty(self._record.checkpoint_dir):
            from longboat.storage.checkpoints import forget_attempts

            with contextlib.suppress(OSError, EngineError):
                forget_attempts(Path(self._record.checkpoint_dir))
        remove_made(self._record)


def _is_empty(folder: str) -> bool:
    """Whether nothing was saved there: most runs save nothing, and need none of the rules for checkpoints."""
    try:
        return not os.listdir(folder)
    except OSError:
        return True


def _remove(folder: Path) -> None:
    """What cannot be removed (an immutable file, a mount) keeps no run from going on or from ending: it stays."""
    try:
        remove_tree(folder)
    except (EngineError, OSError) as error:
        print(f"{folder} stays: {error}", file=sys.stderr)


def remove_made(record: LocalRecord) -> None:
    """Remove the run's checkpoint folder and those above it, as far as the run made them and nothing is in them."""
    if record.made_folder is None:
        return
    folder, top = Path(record.checkpoint_dir), Path(record.made_folder)
    with contextlib.suppress(OSError):
        while folder.is_relative_to(top):
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()
            folder = folder.parent


def load_code(home: Home, record: LocalRecord) -> CodeSnapshot | None:
    """Manifest of the run's code; None for a run without."""
    if record.bundle is None:
        return None
    from longboat.bundles.store import BundleStore

    return BundleStore(home.folder("bundles")).load(record.bundle)


def data_name(item: DataImport) -> str:
    """The folder of an import that all runs share."""
    return _slug(f"{item.url}\0{item.sha256}\0{item.unpack}")


def _slug(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]
