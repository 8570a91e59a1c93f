"""Has all services of a cluster or of some namespaces follow their runs, beside the controller of runs.

It keeps nothing that it could not read again: watches tell which services follow, and every look reads its service
anew. Several may look at once: of two that change a service, one is too late and looks again.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.engines.kubernetes.reconcile.workqueue import RunKey, WatchedTurns
from longboat.engines.kubernetes.slim_objects import RunObject
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Conflict
from longboat.kubeapi.kinds import DEPLOYMENT
from longboat.kubeapi.watch import Change, Reflector
from longboat.serving.kubernetes.following import LOOK_S, follow_once
from longboat.serving.kubernetes.manifests import NAME, RECORD, TRACK
from longboat.serving.kubernetes.status import record_of

WORKERS = 4
"""Looks wait for replicas, up to half a minute; a few that never answer must not keep the others waiting."""
SETTLE_S = 2.0
"""A version that is being rolled out changes its Deployment with every replica."""
LONGEST_S = 300.0
"""Between two looks at a service that cannot be asked: its image may have been removed for good."""


class ServiceObject(msgspec.Struct):
    """A Deployment with what is kept of it here: whether it follows."""

    metadata: RunObject.Meta = msgspec.field(default_factory=RunObject.Meta)

    @property
    def follows(self) -> bool:
        meta = self.metadata
        body = {"metadata": {"name": meta.name, "annotations": meta.annotations}}
        try:
            is_followed = record_of(body).serve.follow is not None
        except EngineError:  # damaged, or of a newer version: `serve ls` tells
            is_followed = False
        return is_followed and meta.labels.get(TRACK) == "stable" and meta.labels.get(NAME) == meta.name


class FollowController(WatchedTurns):
    """Looks at services that follow. `options`: those of WatchedTurns."""

    def __init__(self, client: Client, *, say: Callable[[str], None], **options: Any) -> None:
        threads = ("services", WORKERS)
        super().__init__(self._look, title=_title, longest_s=LONGEST_S, threads=threads, say=say, **options)
        self._client = client
        self._say = say
        self._looked: dict[RunKey, float] = {}  # when: a busy Deployment is not looked at more often for it

    def watch(self, namespace: str | None) -> Reflector[ServiceObject]:
        where: dict[str, Any] = {"namespace": namespace, "everywhere": namespace is None}
        return Reflector(
            self._client, DEPLOYMENT, labels=NAME, into=ServiceObject, on_change=self._changed, kept=_kept, **where
        )

    def note_record(self, change: Change[RunObject], phase: str) -> None:
        """Services ask their own replicas, not the records of runs."""

    def _changed(self, change: Change[ServiceObject]) -> None:
        meta = change.object.metadata
        key = RunKey(meta.namespace, meta.name)
        if change.type == "DELETED" or not change.object.follows:
            self._looked.pop(key, None)
            self._workers.queue.forget(key)
        else:
            due = max(time.monotonic() + SETTLE_S, self._looked.get(key, 0.0) + LOOK_S)
            self._workers.queue.note(key, due)

    def _look(self, key: RunKey) -> float | None:
        """Seconds until the next look; None: there is no such service any more."""
        client = copy.copy(self._client)
        client.namespace = key.namespace
        body = client.find(DEPLOYMENT, key.run)
        if body is None or RECORD not in (body["metadata"].get("annotations") or {}):
            return None
        if record_of(body).serve.follow is None:
            return None
        self._looked[key] = time.monotonic()
        try:
            step = follow_once(client, body)
        except Conflict:  # somebody else has changed it meanwhile
            return SETTLE_S
        if step is not None:
            self._say(f"{_title(key)} goes on to step {step}")
        return LOOK_S


def _kept(body: ServiceObject) -> ServiceObject:
    """Of the annotations nothing is needed once a change has been told."""
    meta = body.metadata
    return ServiceObject(metadata=msgspec.structs.replace(meta, labels={}, annotations={}))


def _title(key: RunKey) -> str:
    return f"service {key.namespace}/{key.run}"
