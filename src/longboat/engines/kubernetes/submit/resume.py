"""The checkpoint that a run begins with: of another run by its name, a folder as ranks see it, or an address."""

from __future__ import annotations

from longboat.core.errors import NotFound, Refused
from longboat.engines.kubernetes.record_store import find_record, list_records, read_record
from longboat.engines.kubernetes.records import Record, State, Storage
from longboat.engines.shared.checkpoint_store import COMPLETE, resume_address
from longboat.kubeapi.client import Client
from longboat.storage.inventory.entries import choose, named_checkpoint
from longboat.storage.urls import object_url


def find_checkpoint(client: Client, wanted: str | None, storage: Storage | None) -> str | None:
    """The folder that `checkpoints.resume` means. Raises NotFound where there is no complete checkpoint."""
    if wanted is None:
        return None
    address = resume_address(wanted)
    if address is not None:
        return address
    if wanted.startswith("/"):
        for _, record, state in list_records(client):
            if wanted.rstrip("/") in (record.checkpoint_dir, state.checkpoint):
                return _newest(client, record, state)
        return wanted.rstrip("/")
    named = named_checkpoint(wanted)
    wanted, step = named if named is not None else (wanted, "")
    try:
        record, state = read_record(find_record(client, wanted))
    except NotFound:
        message = f"no complete checkpoint to resume from: there is no run {wanted!r} in namespace {client.namespace}"
        raise NotFound(message, hint=f"name a run, or a folder of the storage; {COMPLETE}") from None
    if record.checkpoint_store is None:
        _check_storage(record, storage)
    return _of_step(client, record, step) if step else _newest(client, record, state)


def _of_step(client: Client, record: Record, step: str) -> str:
    import os

    from longboat.engines.kubernetes.checkpoints import open_place
    from longboat.engines.kubernetes.reconcile.outlook import look

    with open_place(client, look(client, record.name).snapshot, os.environ) as place:
        return f"{place.where}/{choose(place.entries(), step, record.name).name}"


def _newest(client: Client, record: Record, state: State) -> str:
    if not state.is_final:
        from longboat.engines.kubernetes.reconcile.outlook import look
        from longboat.engines.kubernetes.status import full_status

        status = full_status(client, look(client, record.name).snapshot)
        newest = status.checkpoint
    else:
        newest = state.checkpoint
    if newest is None:
        raise NotFound(
            f"no complete checkpoint to resume from in {record.checkpoint_store or record.checkpoint_dir} of run"
            f" {record.name}",
            hint=COMPLETE,
        )
    if record.checkpoint_store is not None:
        object_url(record.checkpoint_store)  # pods fetch from there: nothing but a bucket
    return record.checkpoint_store or newest


def _check_storage(record: Record, storage: Storage | None) -> None:
    """Checkpoints of another storage cannot be seen from here."""
    theirs = record.storage
    if theirs is None:
        raise Refused(
            f"run {record.name} kept no checkpoints: it had no storage",
            hint="`longboat config set kubernetes.storage.claim NAME` gives runs a storage",
        )
    mine = (storage.claim, storage.nfs, storage.path) if storage is not None else None
    if mine != (theirs.claim, theirs.nfs, theirs.path):
        raise Refused(
            f"the checkpoints of run {record.name} are in another storage than this job's",
            hint="give both the same storage, or copy them with `longboat cp`",
        )
