"""Object stores that a board in a cluster reads: where runs keep their checkpoints, and how its pod reaches them.

With the caller's own credentials: a record of a run can be written by others, and does not decide where these go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.jobs import Secret
from longboat.core.runs import RunStatus
from longboat.core.words import counted
from longboat.engines.kubernetes.checkpoints import store_of
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.reconcile.outlook import look
from longboat.engines.shared.checkpoint_store import STORES
from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import list_secrets
from longboat.kubeapi.errors import ApiError
from longboat.storage.urls import is_object_url, object_url

FILES = ("_FILE", "_BUNDLE", "_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS")
"""Ends of names of variables that lead to files of this machine, which a pod has not."""

MOST_TOLD = 3  # runs that are left out: what others of them lack is the same, as a rule


def stores_of(engine: KubernetesEngine, runs: Sequence[RunStatus], notice: Callable[[str], None]) -> tuple[str, ...]:
    """NAME=URL of those runs that keep their checkpoints in an object store.

    Of several runs those whose server the caller does not name are left out, with a notice: they may be others'. Raises
    EngineError where there is but this one.
    """
    pairs, refusals = [], []
    for run in runs:
        try:
            url = store_of(look(engine.client, run.name).snapshot, engine.environment)
        except NotFound:
            continue  # removed meanwhile
        except ApiError:
            raise
        except EngineError as error:
            refusals.append(error)
        else:
            pairs += [f"{run.name}={url}"] if url is not None else []
    if len(runs) == len(refusals) == 1:
        raise refusals[0]
    for refusal in refusals[:MOST_TOLD]:
        notice(f"left out: {refusal.message}")
    if len(refusals) > MOST_TOLD:
        notice(f"left out: {counted(len(refusals) - MOST_TOLD, 'more run')}")
    return tuple(pairs)


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


def is_passed(name: str) -> bool:
    """Whether a variable of the caller means the same in a pod."""
    return name.startswith(STORES) and not name.endswith(FILES)


def credentials(engine: KubernetesEngine) -> tuple[Secret, ...]:
    """The caller's variables of object stores, as secrets of the board's own run."""
    stored = [name for name in list_secrets(Home(environment=engine.environment)) if name.startswith(STORES)]
    given = [name for name, value in sorted(engine.environment.items()) if value and is_passed(name)]
    return (
        *(Secret(name=name, env=name) for name in given),
        *(Secret(name=name, store=name) for name in stored if name not in given),
    )
