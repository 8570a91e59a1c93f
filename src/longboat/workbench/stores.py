"""Object stores that a board in a cluster reads: where runs keep their checkpoints, and how its pod reaches them.

With the caller's own credentials: a record of a run can be written by others, and does not decide where these go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from longboat.core.errors import EngineError, UsageError
from longboat.core.jobs import Secret
from longboat.core.words import counted
from longboat.engines.kubernetes.checkpoints import store_of
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.record_store import find_record, list_records, read_record
from longboat.engines.kubernetes.records import Record
from longboat.engines.shared.checkpoint_store import STORES
from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import list_secrets
from longboat.storage.urls import is_object_url, object_url

VARIABLES = {
    "s3": ("AWS_",),
    "gs": ("GOOGLE_", "GS_", "GCE_METADATA_HOST", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_",),
}
"""Beginnings of those that tell how to reach each kind."""
FILES = ("_FILE", "_BUNDLE", "_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS")
"""Ends of names of variables that lead to files of this machine, which a pod has not."""
MOST_TOLD = 3
"""Runs that are left out: what others of them lack is the same, as a rule."""


def stores_of(engine: KubernetesEngine, names: Collection[str], notice: Callable[[str], None]) -> tuple[str, ...]:
    """NAME=URL of those runs that keep their checkpoints in an object store.

    Of several runs those whose server the caller does not name are left out, with a notice: they may be others'. Raises
    EngineError where there is but this one.
    """
    pairs, refusals = [], []
    for record in _records_of(engine, names, notice):
        try:
            url = store_of(record, engine.environment)
        except EngineError as error:
            refusals.append(error)
        else:
            pairs += [f"{record.name}={url}"] if url is not None else []
    if len(names) == len(refusals) == 1:
        raise refusals[0]
    for refusal in refusals[:MOST_TOLD]:
        notice(f"left out: {refusal.message}")
    if len(refusals) > MOST_TOLD:
        notice(f"left out: {counted(len(refusals) - MOST_TOLD, 'more run')}")
    return tuple(sorted(pairs))


def _records_of(engine: KubernetesEngine, names: Collection[str], notice: Callable[[str], None]) -> list[Record]:
    """One by its name, many by one list; those that were removed meanwhile are left out of it."""
    if len(names) == 1:
        return [read_record(find_record(engine.client, name))[0] for name in names]
    return [each.record for each in list_records(engine.client, notice) if each.record.name in names]


def named_stores(words: Sequence[str]) -> tuple[str, ...]:
    """NAME=URL of what was given as `[NAME=]URL`."""
    pairs = []
    for word in words:
        name, equals, url = word.partition("=")
        if not equals or "://" in name:
            url = word
            name = url.rstrip("/").rpartition("/")[2]
        if not is_object_url(url) or not name or "/" in name or name.startswith("."):
            hint = "for example --logs cnn=s3://bucket/logs/cnn"
            raise UsageError(f"--logs {word}: expected [NAME=]URL of an object store: s3://, gs:// or az://", hint=hint)
        object_url(url)
        pairs.append(f"{name}={url}")
    return tuple(pairs)


def is_passed(name: str, beginnings: tuple[str, ...] = STORES) -> bool:
    """Whether a variable of the caller means the same in a pod."""
    return name.startswith(beginnings) and not name.endswith(FILES)


def credentials(engine: KubernetesEngine, stores: Sequence[str]) -> tuple[Secret, ...]:
    """The caller's variables of the kinds of object stores that are read, as secrets of the board's own run."""
    kinds = {store.partition("://")[0].rpartition("=")[2] for store in stores}
    beginnings = tuple(beginning for kind in sorted(kinds) for beginning in VARIABLES[kind])
    kept = list_secrets(Home(environment=engine.environment))
    stored = [name for name in kept if name.startswith(beginnings)]
    given = [name for name, value in sorted(engine.environment.items()) if value and is_passed(name, beginnings)]
    return (
        *(Secret(name=name, env=name) for name in given),
        *(Secret(name=name, store=name) for name in stored if name not in given),
    )
