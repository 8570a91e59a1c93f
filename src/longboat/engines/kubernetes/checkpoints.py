"""Checkpoints of a run of a cluster: in its storage through a pod, or in an object store with the caller's credentials.

A pod of the run is used while one runs, else a helper pod. What the record says about folders is checked before
anything is read: others can write records.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from longboat.core.errors import EngineError
from longboat.engines.kubernetes.exec.files import PodPath, reaching
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.manifests.volumes import NODE, is_inside
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.record_store import write_state
from longboat.engines.kubernetes.records import Record
from longboat.engines.shared.checkpoint_store import callers_variables, places_to_set, variables_to_set
from longboat.engines.shared.home import Home
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Conflict
from longboat.storage.fences import MARKER, MARKER_MAX
from longboat.storage.inventory import folder_scan
from longboat.storage.inventory.entries import CheckpointEntry, CheckpointPlace, Digests, entries_of
from longboat.storage.retention import evaluated_name

if TYPE_CHECKING:
    from longboat.storage.inventory.store_place import StorePlace


@contextlib.contextmanager
def open_place(client: Client, snapshot: RunSnapshot, environment: Mapping[str, str]) -> Iterator[CheckpointPlace]:
    """A run that has ended has its newest checkpoint written down: where that was removed, the one before it is."""
    record = snapshot.record
    check_places(record, "read")
    place: PodPlace | StorePlace
    if record.checkpoint_store is not None:
        place = _store(record, environment)
        yield place
        note_newest(client, snapshot, place)
        return
    pod_path = PodPath(kind="checkpoints", path=record.checkpoint_dir)
    # Without a storage each node has a folder of its own, and one of them writes.
    writer = f"{record.job.ends[0]}-0" if record.job.ends and is_inside(record.checkpoint_dir, NODE) else None
    with reaching(client, snapshot, pod_path, node=writer) as remote:
        place = PodPlace(remote, record.checkpoint_dir)
        yield place
        note_newest(client, snapshot, place)


def note_newest(client: Client, snapshot: RunSnapshot, place: PodPlace | StorePlace) -> None:
    """After a removal: what `status` shows, and `--resume` and `serve` begin with, is one that is there."""
    state = snapshot.state
    if not place.has_removed or not state.is_final:
        return
    newest = next((entry for entry in place.entries() if entry.newest), None)
    where = None if newest is None else f"{place.where.rstrip('/')}/{newest.name}"
    if where != state.checkpoint:
        with contextlib.suppress(Conflict):  # somebody else writes to it, who may know more
            write_state(
                client, snapshot.record.name, snapshot.version, msgspec.structs.replace(state, checkpoint=where)
            )


def check_places(record: Record, act: str = "removed") -> None:
    """Refuse a record whose folders are not those of its own run: what is in them is others' affair."""
    from longboat.engines.kubernetes.manifests.volumes import places, run_folder

    kept = places(record.job, record.storage, run=record.name, uid=record.uid)
    is_own = (kept.store, kept.checkpoints) == (record.checkpoint_store, record.checkpoint_dir)
    folder = f"longboat/{run_folder(record.name, record.uid)}"
    if not is_own or (record.storage is not None and record.storage.folder != folder):
        raise EngineError(
            f"the record of {record.name} names folders that are not those of this run: nothing in them is {act}",
            hint="`longboat rm` without --purge removes the run, and leaves them as they are",
        )


def store_of(record: Record, environment: Mapping[str, str]) -> str | None:
    """The address of a run's checkpoints in an object store that the caller reaches; None: they are in none."""
    if record.checkpoint_store is None:
        return None
    check_places(record, "read")
    _reaching_variables(record, environment)
    return record.checkpoint_store


def _store(record: Record, environment: Mapping[str, str]) -> StorePlace:
    from longboat.storage.inventory.store_place import StorePlace

    return StorePlace(str(record.checkpoint_store), _reaching_variables(record, environment))


def _reaching_variables(record: Record, environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's own, if they say which server it is."""
    url = str(record.checkpoint_store)
    variables = callers_variables(Home(environment=environment), environment)
    missing = places_to_set(record.job, url, variables)
    if missing:
        raise EngineError(
            f"the checkpoints in {url} cannot be read: the run told by {', '.join(missing)} which server this is, and a"
            " record does not decide where credentials go",
            hint=f"set {' and '.join(variables_to_set(record.job))} in this shell if you trust them",
        )
    return variables


class PodPlace:
    """A checkpoint folder as a pod sees it. Promises: `storage.inventory.entries.CheckpointPlace`."""

    def __init__(self, remote: Remote, folder: str) -> None:
        self._remote = remote
        self.where = folder
        self.has_removed = False

    def entries(self) -> list[CheckpointEntry]:
        return entries_of(self._ask("scan", self.where), self.where)

    def marker(self, entry: CheckpointEntry) -> bytes:
        marker = bytearray()
        for block in self._remote.cat(self._path(entry, MARKER)):
            marker += block
            if len(marker) >= MARKER_MAX:
                break
        return bytes(marker[:MARKER_MAX])

    def digest(self, entry: CheckpointEntry) -> Digests:
        digests = self._ask("digest", self._path(entry))
        is_whole = isinstance(digests, dict) and all(
            isinstance(each, list) and len(each) == 2 for each in digests.values()
        )
        if not is_whole:
            raise EngineError(f"{entry.where}: the answer is not understood")
        return digests

    def _ask(self, verb: str, folder: str) -> Digests:
        answer: Digests = self._remote.ask(verb, folder, path=folder_scan.__file__)
        return answer

    def fetch(self, entry: CheckpointEntry, target: str) -> None:
        self._remote.copy_out(self._path(entry), Path(target))

    def remove(self, entry: CheckpointEntry) -> bool:
        """The marker first: what is half removed never looks complete."""
        self.has_removed = True
        self._remote.remove(self._path(entry, MARKER))
        self._remote.remove(self._path(entry))
        self._remote.remove(posixpath.join(self.where, evaluated_name(entry.step)))
        return True

    def mark(self, name: str, data: bytes | None) -> None:
        path = posixpath.join(self.where, name)
        if data is None:
            self._remote.remove(path)
        else:
            self._remote.put(path, io.BytesIO(data))

    def _path(self, entry: CheckpointEntry, *inside: str) -> str:
        return posixpath.join(self.where, entry.name, *inside)
