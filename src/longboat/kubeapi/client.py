"""Kubernetes API client of one cluster: get, list, create, apply, patch, delete, logs. Errors are those of `errors`.

Objects are read into plain dicts, or into the type that a caller names with the fields that it needs (ten thousand pods
fit into little memory this way), and written as plain dicts. Not here: watches (`watch`) and exec (`streams`).
"""

from __future__ import annotations

import builtins
import copy
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload
from urllib.parse import urlencode

import msgspec

from longboat.core.guards.background_call import BackgroundCall
from longboat.core.guards.decoding import convert, decoder
from longboat.kubeapi import kubeconfig
from longboat.kubeapi.connection.retries import TOTAL_S
from longboat.kubeapi.connection.transport import ApiRequest, ResponseStream, Transport
from longboat.kubeapi.errors import Conflict, Expired, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import POD, Kind, kind_of

MANAGER = "longboat"
MOST_PAGES = 20_000
"""Of a list: ten million objects, where a large cluster has some hundred thousand."""
REPEATABLE = ("GET", "HEAD", "PUT", "DELETE")
READING = ("GET", "HEAD")
PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
T = TypeVar("T")
Query = Mapping[str, Any]
Object = dict[str, Any]


class PageInfo(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T]):
    metadata: PageInfo = msgspec.field(default_factory=PageInfo)
    items: list[T] = []


class ObjectList(msgspec.Struct, Generic[T]):
    """What was there at one moment; a watch from `version` on misses nothing."""

    items: list[T]
    version: str


def read(into: Any, content: bytes | msgspec.Raw) -> Any:
    """An object from JSON. A null is the same as nothing, as everywhere in Kubernetes."""
    wanted = Any if into is dict else into
    try:
        try:
            return decoder(wanted).decode(content)
        except msgspec.ValidationError:
            return convert(_without_nulls(msgspec.json.decode(content)), wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_understood(str(error)) from error


def _not_understood(reason: str) -> Unreachable:
    hint = "is this the address of an API server?"
    return Unreachable(f"the server's answer is not understood: {reason[:500]}", hint=hint)


def _without_nulls(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _without_nulls(value) for key, value in part.items() if value is not None}
    return [_without_nulls(item) for item in part] if isinstance(part, list) else part


def continue_in(page: bytes) -> str:
    """What the next page is asked for with; it stands before the items. Empty: this was the last."""
    head = page[: page.find(b'"items"')]
    if b'"continue"' not in head:
        return ""
    match = re.search(rb'"continue"\s*:\s*"([A-Za-z0-9+/=_-]*)"', head)
    return match[1].decode() if match else str(read(Page[Any], page).metadata.continue_)


class Client:
    """One cluster, as one user, in one namespace unless told otherwise. Safe for several threads.

    A request that broke or met an overloaded server is repeated with a growing pause for up to half a minute, if doing
    it twice is the same as doing it once; then `Unreachable`. A server that never answered and refuses
    connections is waited for as long as a restart takes (10 s); one that cannot be found is not waited for.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.context = transport.access.context
        self.namespace = transport.access.namespace
        self.server = transport.access.server
        self.left_s: Callable[[], float] | None = None

    @classmethod
    def open(
        cls, *, context: str | None = None, namespace: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Client:
        """From the kubeconfig, or from the pod we are in. Nothing is asked of the server yet."""
        variables = os.environ if environment is None else environment
        return cls(Transport(kubeconfig.find(context, namespace, variables), variables))

    def within(self, left_s: Callable[[], float]) -> Client:
        """The same cluster for somebody whose right to write ends: by a Lease, say, that others may take then.

        Every attempt at a write asks first how many seconds are left, ends by then, and is not made when none are
        (LeaseExpired). Reading is always allowed.
        """
        before = self.left_s
        client = copy.copy(self)
        client.left_s = left_s if before is None else lambda: min(before(), left_s())
        return client

    @property
    def requests(self) -> int:
        """How many requests were made so far, repeated ones included."""
        return self.transport.requests

    def now(self) -> float:
        """The time by the server's clock, which all processes that look at a run have in common; ours may be wrong."""
        return time.time() + self.transport.clock_skew_s

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str | None = None,
        timeout_s: float = 30.0,
        may_repeat: bool | None = None,
    ) -> bytes:
        """Any request. `may_repeat` (default: by the method) allows a second one where the first may have arrived.

        After `timeout_s` without a byte an attempt has failed, and no other one is made.
        """
        headers = {"Accept": accept} if accept else {}
        if method == "GET":
            headers["Accept-Encoding"] = "gzip"  # large lists only; faster even when the server is on this machine
        sent = None
        if body is not None:
            sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
            headers["Content-Type"] = content_type
        repeats = method in REPEATABLE if may_repeat is None else may_repeat
        total_s = min(timeout_s, TOTAL_S)
        left_s = None if method in READING else self.left_s
        ask = ApiRequest(method, path + as_text(query), headers, sent, timeout_s, repeats, total_s, left_s=left_s)
        return self.transport.request(ask)

    @overload
    def get(self, kind: Kind, name: str, *, namespace: str | None = None) -> Object: ...
    @overload
    def get(self, kind: Kind, name: str, *, namespace: str | None = None, into: type[T]) -> T: ...
    def get(self, kind: Kind, name: str, *, namespace: str | None = None, into: Any = dict) -> Any:
        """The object; `ObjectNotFound` if there is none."""
        return read(into, self.request("GET", self.path(kind, namespace, name)))

    @overload
    def find(self, kind: Kind, name: str, *, namespace: str | None = None) -> Object | None: ...
    @overload
    def find(self, kind: Kind, name: str, *, namespace: str | None = None, into: type[T]) -> T | None: ...
    def find(self, kind: Kind, name: str, *, namespace: str | None = None, into: Any = dict) -> Any:
        """The object, or None."""
        try:
            return self.get(kind, name, namespace=namespace, into=into)
        except ObjectNotFound:
            return None

    @overload
    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        everywhere: bool = False,
        labels: str = "",
        fields: str = "",
        page: int = 500,
    ) -> ObjectList[Object]: ...
    @overload
    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        everywhere: bool = False,
        labels: str = "",
        fields: str = "",
        into: type[T],
        page: int = 500,
    ) -> ObjectList[T]: ...
    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        everywhere: bool = False,
        labels: str = "",
        fields: str = "",
        into: Any = dict,
        page: int = 500,
    ) -> ObjectList[Any]:
        """All objects, page by page; from the start again when the server forgot the moment of the first page."""
        path = kind.path() if everywhere else self.path(kind, namespace)
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": page or ""}
        for attempt in range(3):
            try:
                return self._pages(path, query, into)
            except Expired:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _pages(self, path: str, query: Query, into: Any) -> ObjectList[Any]:
        """A page is taken apart in another thread while the server makes the next: sent first, then decoded."""
        content = self.request("GET", path, query=query)
        token = continue_in(content)
        if not token:
            page = read(Page[into], content)
            return ObjectList(page.items, page.metadata.resource_version)
        items: builtins.list[Any] = []
        pages = 0
        while token:
            decoding, before = BackgroundCall(partial(read, Page[into], content)), token
            content = self.request("GET", path, query={**query, "continue": token})
            token = continue_in(content)
            items += decoding.result().items
            pages += 1
            if token == before or pages > MOST_PAGES:
                raise _not_understood("a list that has no end")
        last = read(Page[into], content)
        return ObjectList(items + last.items, last.metadata.resource_version)

    def create(self, body: Object, *, dry_run: bool = False) -> Object:
        """Make it; `AlreadyExists` if it is. Unknown fields are errors.

        A create of a named object that broke is sent again. So after a break `AlreadyExists` may mean our own first
        attempt: whoever must know compares uid, labels or content with what is there.
        """
        kind, meta = kind_of(body), body.get("metadata", {})
        path = self.path(kind, meta.get("namespace"))
        repeats = bool(meta.get("name")) or kind.kind.endswith("Review") or dry_run
        return self._write("POST", path, body, _options(dry_run), may_repeat=repeats)

    def apply(self, body: Object, *, force: bool = True, dry_run: bool = False) -> Object:
        """Server-side apply as field manager `longboat`: afterwards it is there with these fields, as often as done."""
        query = {**_options(dry_run), "force": "true" if force else "false"}
        return self._write("PATCH", self._path_of(body), body, query, "application/apply-patch+yaml")

    def replace(self, body: Object) -> Object:
        """The object as given, if nobody changed it since its metadata.resourceVersion; else `Conflict`.

        After a break, `Conflict` may mean our own first attempt.
        """
        return self._write("PUT", self._path_of(body), body, _options(False))

    def patch(
        self,
        kind: Kind,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        kind_of_patch: Literal["merge", "json", "strategic"] = "merge",
    ) -> Object:
        """Change some fields. A JSON patch is never sent twice: it may mean something else the second time."""
        path = self.path(kind, namespace, name, subresource)
        repeats = kind_of_patch != "json"
        return self._write("PATCH", path, body, _options(False), PATCHES[kind_of_patch], may_repeat=repeats)

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        grace_s: int | None = None,
        propagation: str = "Background",
        uid: str | None = None,
    ) -> None:
        """Delete an object; not found is no error. With `uid`, another object of that name is left alone."""
        options: dict[str, Any] = {"propagationPolicy": propagation}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            self.request("DELETE", self.path(kind, namespace, name), body=options)
        except ObjectNotFound:
            pass
        except Conflict:
            if uid is None:
                raise

    def log(
        self,
        pod: str,
        *,
        namespace: str | None = None,
        container: str = "main",
        follow: bool = False,
        since_time: str | None = None,
        tail: int | None = None,
        limit_bytes: int | None = None,
        idle_s: float | None = None,
        patience_s: float = TOTAL_S,
    ) -> ResponseStream:
        """A container's log in chunks as they come, to its end; `Unreachable` when the stream breaks before.

        With `follow`, silence is no error unless it lasts `idle_s`. A server that cannot reach the node is asked again
        for `patience_s`. The server ends a stream properly as well when it
        lost the node: whether the container has ended is in the pod's status.
        """
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "sinceTime": since_time,
            "tailLines": tail,
            "limitBytes": limit_bytes,
        }
        path = self.path(POD, namespace, pod, "log") + as_text(query)
        ask = ApiRequest("GET", path, {"Accept": "*/*"}, total_s=patience_s)
        return self.transport.stream(ask, idle_s=idle_s if follow else idle_s or ask.timeout_s)

    def path(
        self, kind: Kind, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        return kind.path(namespace or self.namespace, name, subresource)

    def _path_of(self, body: Object) -> str:
        meta = body["metadata"]
        return self.path(kind_of(body), meta.get("namespace"), meta["name"])

    def _write(
        self,
        method: str,
        path: str,
        body: Any,
        query: Query,
        content_type: str = "application/json",
        *,
        may_repeat: bool = True,
    ) -> Object:
        answer = self.request(method, path, query=query, body=body, content_type=content_type, may_repeat=may_repeat)
        written: Object = read(dict, answer)
        return written


def _options(dry_run: bool) -> dict[str, str]:
    options = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    return {**options, "dryRun": "All"} if dry_run else options


def as_text(query: Query | None) -> str:
    """`?a=b` with what is set: nothing for None, an empty text or False."""
    fields = {
        key: value for key, value in (query or {}).items() if value is not None and value is not False and value != ""
    }
    return f"?{urlencode(fields, doseq=True)}" if fields else ""
