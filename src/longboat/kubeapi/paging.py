"""Paged lists of which only a part is kept: decoded page by page, so that the rest takes no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from longboat.kubeapi.client import Client, Page, read
from longboat.kubeapi.errors import Expired
from longboat.kubeapi.kinds import Kind

PAGE = 100
"""Objects of one answer. Bodies are some kilobytes each, so a page is less than a megabyte, however many there are: the
memory of a page that was let go stays with the thread that read it, in each of the threads that take turns at it."""
ATTEMPTS = 3  # a server that forgets faster than we read will not get better
T = TypeVar("T")


def collect(
    client: Client,
    kind: Kind,
    keep: Callable[[Any], T | None],
    *,
    labels: str = "",
    fields: str = "",
    into: Any = dict,
) -> list[T]:
    """What `keep` makes of every object of the client's namespace, None left out."""
    query = {"labelSelector": labels, "fieldSelector": fields, "limit": PAGE}
    for attempt in range(ATTEMPTS):
        try:
            kept = (keep(item) for item in _items(client, client.path(kind), query, into))
            return [item for item in kept if item is not None]
        except Expired:  # the server forgot the moment of the first page: from the start again
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _items(client: Client, path: str, query: dict[str, Any], into: Any) -> Iterator[Any]:
    token = ""
    while True:
        asked = {**query, "continue": token} if token else query
        page = read(Page[into], client.request("GET", path, query=asked))
        token = page.metadata.continue_
        yield from page.items
        if not token:
            return
