"""What changes in a cluster, as it changes: one watch, and a reflector that keeps a copy of a collection for ever.

A watch may break at any moment, silently or not. The reflector goes on from the last version it saw, lists anew when
the server no longer knows that version, and tells what vanished in between as deletions.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import msgspec

from longboat.engines.kubernetes.api.answers import error_in
from longboat.engines.kubernetes.api.client import Client, as_text, read
from longboat.engines.kubernetes.api.errors import ApiError, Expired, Forbidden, Invalid, NotThere, Unreachable
from longboat.engines.kubernetes.api.kinds import Kind
from longboat.engines.kubernetes.api.transport import Ask, Stream

LASTS_S = 290
"""The server ends a watch after so long; another is opened where it ended."""
SILENCE_S = 90.0
"""Bookmarks come every minute. A connection that is silent for longer is dead, whatever TCP says."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
NO_USE = (Forbidden, Invalid, NotThere)
T = TypeVar("T")
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Change(msgspec.Struct, Generic[T], frozen=True):
    """An object that came, changed or went; of one that went, its last state."""

    type: ChangeType
    object: T


class Scope(NamedTuple):
    """Which objects."""

    kind: Kind
    namespace: str | None = None
    everywhere: bool = False
    labels: str = ""
    fields: str = ""
    into: Any = dict

    def path(self, client: Client) -> str:
        return self.kind.path() if self.everywhere else client.path(self.kind, self.namespace)

    def list(self, client: Client) -> tuple[list[Any], str]:
        kind, namespace, everywhere, labels, fields, into = self
        found = client.list(kind, namespace=namespace, everywhere=everywhere, labels=labels, fields=fields, into=into)
        return found.items, found.version


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Marked(msgspec.Struct):
    """As much of an object as tells its version."""

    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)


_LINES = msgspec.json.Decoder(_Line)
_MARKS = msgspec.json.Decoder(_Marked)


class Watch(Generic[T]):
    """The changes since a version, until the server ends the watch. `version` is the last that was seen.

    `Expired` when the server does not know the version any more, `Unreachable` when the connection broke. `close` may
    be called by another thread and ends the iteration.
    """

    def __init__(
        self, client: Client, scope: Scope, version: str, *, lasts_s: float = LASTS_S, silence_s: float = SILENCE_S
    ) -> None:
        self.version = version
        self._into = scope.into
        self._what = f"watch {scope.kind.plural}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": max(1, int(lasts_s * random.uniform(0.8, 1.0))),
            "labelSelector": scope.labels,
            "fieldSelector": scope.fields,
        }
        # Not repeated inside: the reflector has its own patience, and can be closed while it waits.
        ask = Ask("GET", scope.path(client) + as_text(query), total_s=0.0)
        self._stream: Stream = client.transport.stream(ask, idle_s=silence_s)

    def __iter__(self) -> Iterator[Change[T]]:
        try:
            for line in self._lines():
                found = _LINES.decode(line)
                if found.type == "ERROR":
                    raise error_in(msgspec.json.decode(found.object), self._what)
                version = _MARKS.decode(found.object).metadata.resource_version
                if found.type != "BOOKMARK":
                    yield Change(cast(ChangeType, found.type), read(self._into, found.object))
                self.version = version or self.version
        except msgspec.DecodeError as error:
            raise Unreachable(f"{self._what}: not understood: {error}") from error
        finally:
            self.close()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for content in self._stream:
            *lines, rest = (rest + content).split(b"\n")
            yield from (line for line in lines if line)

    def close(self) -> None:
        self._stream.close()


def watch(
    client: Client,
    kind: Kind,
    *,
    namespace: str | None = None,
    everywhere: bool = False,
    labels: str = "",
    fields: str = "",
    into: Any = dict,
    version: str = "",
) -> Watch[Any]:
    """One watch. Without a version the objects that are there come first, as ADDED."""
    return Watch(client, Scope(kind, namespace, everywhere, labels, fields, into), version)


def uid_of(item: Any) -> str:
    return str(item["metadata"]["uid"] if isinstance(item, dict) else item.metadata.uid)


def version_of(item: Any) -> str:
    return str(item["metadata"]["resourceVersion"] if isinstance(item, dict) else item.metadata.resource_version)


class Reflector(Generic[T]):
    """A copy of a collection that follows the cluster, in a thread of its own, until `close`.

    `on_change` is called in that thread for every change, deletions that were missed included; it must not raise.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        *,
        namespace: str | None = None,
        everywhere: bool = False,
        labels: str = "",
        fields: str = "",
        into: Any = dict,
        on_change: Callable[[Change[T]], None] | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._client = client
        self._scope = Scope(kind, namespace, everywhere, labels, fields, into)
        self._on_change = on_change
        self._silence_s = silence_s
        self._items: dict[str, T] = {}
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._watch: Watch[T] | None = None
        self.revision = 0
        self.is_synced = False
        self.trouble: ApiError | None = None
        self.version = ""
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.plural}", daemon=True)
        self._thread.start()

    @property
    def items(self) -> dict[str, T]:
        """All objects by uid, as of now."""
        with self._changed:
            return dict(self._items)

    def sync(self, timeout_s: float = 30.0) -> Reflector[T]:
        """Wait for the first list. What the server refuses for good is raised at once, other trouble in the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.is_synced or isinstance(self.trouble, NO_USE) or self._stop.is_set(), timeout_s
            )
            if self.is_synced:
                return self
            raise self.trouble or Unreachable(f"no list of {self._scope.kind.plural} within {timeout_s:.0f} s")

    def wait(self, seen: int, timeout_s: float | None = None) -> int:
        """Wait until `revision` is greater than `seen`, or the time is over, or it is closed; the revision."""
        with self._changed:
            self._changed.wait_for(lambda: self.revision > seen or self._stop.is_set(), timeout_s)
            return self.revision

    def close(self) -> None:
        """End at once. A list that is under way is left to end by itself and changes nothing any more."""
        with self._changed:
            self._stop.set()
            held = self._watch
            self._changed.notify_all()
        if held is not None:
            held.close()

    def __enter__(self) -> Reflector[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            before, told = self.revision, 0.0
            try:
                if not self.version:
                    self._list()
                self._follow()
                pause = FIRST_PAUSE_S
                continue
            except Expired:
                self.version = ""
            except ApiError as error:
                self._note(error)
                told = float(error.details.get("retryAfterSeconds") or 0.0)
            pause = FIRST_PAUSE_S if self.revision > before else min(pause * 2, LONGEST_PAUSE_S)
            self._stop.wait(max(pause, told) * random.uniform(1.0, 1.25))

    def _note(self, error: ApiError) -> None:
        with self._changed:
            self.trouble = error
            self._changed.notify_all()

    def _list(self) -> None:
        found, version = self._scope.list(self._client)
        now = {uid_of(item): item for item in found}
        changes: list[Change[T]] = []
        with self._changed:
            if self._stop.is_set():
                return
            for uid, item in self._items.items():
                if uid not in now:
                    changes.append(Change("DELETED", item))
            for uid, item in now.items():
                known = self._items.get(uid)
                if known is None:
                    changes.append(Change("ADDED", item))
                elif version_of(known) != version_of(item):
                    changes.append(Change("MODIFIED", item))
            self._items = now
            self.version = version
            self.trouble = None
            self.is_synced = True
            self.revision += 1
            self._changed.notify_all()
        for change in changes:
            self._tell(change)

    def _follow(self) -> None:
        """One watch to its end."""
        opened: Watch[T] = Watch(self._client, self._scope, self.version, silence_s=self._silence_s)
        with self._changed:
            self._watch = opened
            self.trouble = None
        try:
            if self._stop.is_set():
                return
            for change in opened:
                self._take(change)
        finally:
            self.version = opened.version
            opened.close()

    def _take(self, change: Change[T]) -> None:
        uid = uid_of(change.object)
        with self._changed:
            if self._stop.is_set():
                return
            if change.type == "DELETED":
                self._items.pop(uid, None)
            else:
                self._items[uid] = change.object
            self.revision += 1
            self._changed.notify_all()
        self._tell(change)

    def _tell(self, change: Change[T]) -> None:
        if self._on_change is not None and not self._stop.is_set():
            self._on_change(change)
