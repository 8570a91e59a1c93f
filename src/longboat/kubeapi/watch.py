"""Watches, and the reflector that keeps a copy of a collection up to date over any number of them.

A watch may break at any moment, silently or not. The reflector goes on from the last version it saw, lists anew when
the server no longer knows that version, and tells what vanished in between as deletions. Whatever goes wrong in its
thread is noted (`trouble`) and tried again; a copy that nobody vouched for lately is not `is_fresh`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.guards.decoding import decoder
from longboat.kubeapi.answers import error_in
from longboat.kubeapi.boottime import clock
from longboat.kubeapi.client import Client, as_text, read
from longboat.kubeapi.connection.transport import ApiRequest, ResponseStream
from longboat.kubeapi.errors import ApiError, Expired, Forbidden, Invalid, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import Kind

LASTS_S = 290
"""The server ends a watch after so long; another is opened where it ended."""
SILENCE_S = 90.0
"""Bookmarks come every minute. A connection that is silent for longer is dead, whatever TCP says."""
BLIND_S = 120.0
"""A copy is believed for so long after the last list, event, bookmark or opened watch. Longer than SILENCE_S: a
connection that died is noticed and opened anew before anybody calls the copy old."""
UNHEALTHY_S = 300.0
"""A copy that is older fails its process's liveness probe. An API server that restarts is away for less; what a restart
of the process may mend (a token, a plugin, memory) is not waited for longer."""
FIRST_PAUSE_S = 0.1  # a watch that ended as watches do is opened anew at once
LONGEST_PAUSE_S = 10.0  # an API server that is away is asked gently, and missed for ten seconds at most
NOT_SERVED_PAUSE_S = 60.0
"""The longest for a kind that the cluster does not serve: somebody may install it some day."""
LONGEST_LINE = 64 << 20
"""Bytes of one event. etcd keeps at most a few MiB of an object: more is no event, and must not fill the memory."""
MOST_TELLINGS = 3
"""How often a change is told to a handler that fails."""
NO_USE = (Forbidden, Invalid, ObjectNotFound)
T = TypeVar("T")
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Change(msgspec.Struct, Generic[T], frozen=True):
    """An object that came, changed or went; of one that went, its last state."""

    type: ChangeType
    object: T


class WatchScope(NamedTuple):
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
        object_list = client.list(
            kind, namespace=namespace, everywhere=everywhere, labels=labels, fields=fields, into=into
        )
        return object_list.items, object_list.version


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Marked(msgspec.Struct):
    """Metadata of an object, for its resourceVersion."""

    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)


_LINES = decoder(_Line)
_MARKS = decoder(_Marked)


class Watch(Generic[T]):
    """The changes since a version, until the server ends the watch. `version` is the last that was seen.

    `Expired` when the server does not know the version any more, `Unreachable` when the connection broke. `close` may
    be called by another thread and ends the iteration.
    """

    def __init__(
        self, client: Client, scope: WatchScope, version: str, *, lasts_s: float = LASTS_S, silence_s: float = SILENCE_S
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
        ask = ApiRequest("GET", scope.path(client) + as_text(query), total_s=0.0)
        self._stream: ResponseStream = client.transport.stream(ask, idle_s=silence_s)
        self.heard_at = clock()  # the last line, bookmarks included; at first the beginning of the answer

    def __iter__(self) -> Iterator[Change[T]]:
        try:
            for line in self._lines():
                event = _LINES.decode(line)
                self.heard_at = clock()
                if event.type == "ERROR":
                    raise error_in(msgspec.json.decode(event.object), self._what)
                version = _MARKS.decode(event.object).metadata.resource_version
                if event.type != "BOOKMARK":
                    yield Change(cast(ChangeType, event.type), read(self._into, event.object))
                self.version = version or self.version
        except msgspec.DecodeError as error:
            raise Unreachable(f"{self._what}: not understood: {error}") from error
        finally:
            self.close()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for content in self._stream:
            *lines, rest = (rest + content).split(b"\n")
            if len(rest) > LONGEST_LINE:
                raise Unreachable(f"{self._what}: an event of more than {LONGEST_LINE >> 20} MiB")
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
    return Watch(client, WatchScope(kind, namespace, everywhere, labels, fields, into), version)


def uid_of(item: Any) -> str:
    return str(item["metadata"]["uid"] if isinstance(item, dict) else item.metadata.uid)


def version_of(item: Any) -> str:
    return str(item["metadata"]["resourceVersion"] if isinstance(item, dict) else item.metadata.resource_version)


class Reflector(Generic[T]):
    """A copy of a collection that follows the cluster, in a thread of its own, until `close`.

    `on_change` is called in that thread for every change, deletions that were missed included. If it raises, that is
    noted in `handler_trouble`, and the change is told again with the next news. `kept`: what stays in memory of an
    object after its change was told; a deletion that was missed is told with that. `is_optional`: who may not see it
    from the start is not to be asked again and again.
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
        kept: Callable[[T], T] = lambda item: item,
        is_optional: bool = False,
    ) -> None:
        self._client = client
        self._kept, self._is_optional = kept, is_optional
        self._scope = WatchScope(kind, namespace, everywhere, labels, fields, into)
        self._on_change = on_change
        self._silence_s = silence_s
        self._items: dict[str, T] = {}
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._watch: Watch[T] | None = None
        self.revision = 0
        self.is_synced = False
        self.trouble: ApiError | None = None
        self.handler_trouble = ""
        self.version = ""
        self._listed_at = clock()
        self._untold: dict[str, tuple[Change[T], int]] = {}
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.plural}", daemon=True)
        self._thread.start()

    @property
    def items(self) -> dict[str, T]:
        """All objects by uid, as of now."""
        with self._changed:
            return dict(self._items)

    @property
    def age_s(self) -> float:
        """Age of the copy: seconds since the last list, event, bookmark, or watch that was opened.

        Before the first list: since it was begun.
        """
        with self._changed:
            held, listed = self._watch, self._listed_at
        return max(0.0, clock() - (listed if held is None else max(listed, held.heard_at)))

    @property
    def is_fresh(self) -> bool:
        """Whether the copy may be decided on: it was listed, it is followed, and news of it are not too old."""
        return self.is_synced and self._thread.is_alive() and self.age_s <= BLIND_S

    def why_stale(self) -> str:
        """Why the copy cannot be relied on at the moment, for a person; empty when it can."""
        plural, trouble = self._scope.kind.plural, self.trouble
        if trouble is not None:
            return f"cannot watch {plural}: {trouble.message}"
        if not self._thread.is_alive():
            return f"the watch of {plural} has ended"
        if not self.is_synced:
            return f"{plural} were not listed yet"
        return "" if self.is_fresh else f"nothing was heard of {plural} for {self.age_s:.0f} s"

    def why_long_stale(self) -> str:
        """The same, once it has lasted so long that somebody must be called; empty before."""
        is_over = self.age_s > UNHEALTHY_S or not self._thread.is_alive()
        return f"{self.why_stale()} (for {self.age_s:.0f} s)" if is_over else ""

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
            before, asked_s = self.revision, 0.0
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
                if self._is_optional and isinstance(error, Forbidden) and not self.is_synced:
                    return
                asked_s = float(error.details.get("retryAfterSeconds") or 0.0)
            except Exception as error:
                # A token file that cannot be read, a plugin that is gone, no memory, an event nobody foresaw: a thread
                # that ended here would leave a copy that looks alive. An event that failed may fail again: list anew.
                self._note(_as_api_error(error))
                self.version = ""
            longest = NOT_SERVED_PAUSE_S if isinstance(self.trouble, ObjectNotFound) else LONGEST_PAUSE_S
            pause = FIRST_PAUSE_S if self.revision > before else min(pause * 2, longest)
            self._stop.wait(max(pause, asked_s) * random.uniform(1.0, 1.25))

    def _note(self, error: ApiError) -> None:
        with self._changed:
            self.trouble = error
            self._changed.notify_all()

    def _list(self) -> None:
        items, version = self._scope.list(self._client)
        now = {uid_of(item): item for item in items}
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
            self._items = {uid: self._kept(item) for uid, item in now.items()}
            self.version = version
            self._listed_at = clock()
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
                self._items[uid] = self._kept(change.object)
            self.revision += 1
            self._changed.notify_all()
        self._tell(change)

    def _tell(self, change: Change[T]) -> None:
        if self._on_change is None or self._stop.is_set():
            return
        untold, self._untold = self._untold, {}
        uid = uid_of(change.object)
        untold.pop(uid, None)  # what is newer says all
        for pending, times in (*untold.values(), (change, 0)):
            try:
                self._on_change(pending)
            except Exception as error:  # a fault in one handler must not end the watch
                self.handler_trouble = f"{type(error).__name__}: {error}"
                if times + 1 < MOST_TELLINGS:
                    self._untold[uid_of(pending.object)] = (pending, times + 1)


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, LongboatError):
        return Unreachable(error.message, hint=error.hint)
    return Unreachable(f"{type(error).__name__}: {error}")
