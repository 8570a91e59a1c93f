"""Resize requests of managed instance groups: orders of which all machines are made at once, or none. Pure but for the
requests.

Google makes machines of pools with flex start only so: the request waits until there is room for all of it. It is named
by the order's token, and a group has a name once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from longboat.autoscaler.providers.gcp.groups import GroupMachine
from longboat.clouds.gcp.session import GoogleSession
from longboat.clouds.rest import RestFault
from longboat.core.jobs import Value

PREFIX = "lb"
WAITING = ("ACCEPTED", "CREATING", "STATE_UNSPECIFIED")
MOST_ENDED = 8
"""As many requests that have ended are kept, besides those of which no list has told: Google keeps them for ever."""


class ResizeRequest(Value, frozen=True):
    token: str
    state: str
    names: tuple[str, ...] = ()
    created: str = ""
    code: str = ""
    message: str = ""

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    @property
    def is_failed(self) -> bool:
        return self.state == "FAILED"


def read_request(body: Mapping[str, Any]) -> ResizeRequest:
    status = body.get("status") or {}
    failure = status.get("error") or (status.get("lastAttempt") or {}).get("error") or {}
    error: Mapping[str, Any] = next(iter(failure.get("errors") or ()), {})
    return ResizeRequest(
        token=str(body["name"]).removeprefix(PREFIX),
        state=body.get("state") or "",
        names=tuple(each["name"] for each in body.get("instances") or ()),
        created=body.get("creationTimestamp") or "",
        code=str(error.get("code") or ""),
        message=" ".join(str(error.get("message") or "").split())[:600],
    )


def waiting_machines(requests: Sequence[ResizeRequest], zone: str, there: Sequence[GroupMachine]) -> list[GroupMachine]:
    """Machines that are to come and that the group does not list yet."""
    known = {machine.name for machine in there}
    return [
        GroupMachine(name=name, zone=zone, state="pending", token=each.token, message=_words(each))
        for each in requests
        if each.is_waiting
        for name in each.names
        if name not in known
    ]


def _words(request: ResizeRequest) -> str:
    text = f": {request.code}: {request.message}" if request.code else ""
    return f"Google makes all machines of the order at once, and waits for room{text}"


def outdated(requests: Sequence[ResizeRequest], known: Collection[str]) -> list[ResizeRequest]:
    """Those that have ended and of which a list has told, but for the newest. `known`: their tokens.

    One that failed and was told by nobody would be an order of which the loop never hears why nothing came of it.
    """
    ended = sorted((each for each in requests if not each.is_waiting), key=lambda each: each.created)
    return [each for each in ended[: max(len(ended) - MOST_ENDED, 0)] if each.token in known]


class ResizeRequests:
    """Those of one group, by the path of its manager. Raises RestFault."""

    def __init__(self, session: GoogleSession, manager: str) -> None:
        self._session, self._path = session, f"{manager}/resizeRequests"

    def list(self) -> tuple[ResizeRequest, ...]:
        """Those of the autoscaler."""
        bodies = self._session.items("GET", self._path, "items")
        return tuple(read_request(body) for body in bodies if str(body.get("name") or "").startswith(PREFIX))

    def find(self, token: str) -> ResizeRequest | None:
        return next((each for each in self.list() if each.token == token), None)

    def order(self, token: str, names: Sequence[str], known: Collection[str]) -> None:
        """Once for a token; makes room in the list for it, of those that ended and were told."""
        for each in outdated(self.list(), known):
            self._ask("DELETE", f"/{PREFIX}{each.token}")
        body = {"name": PREFIX + token, "instances": [{"name": name} for name in names]}
        try:
            self._session.compute("POST", self._path, body)
        except RestFault as fault:
            if fault.status != 409:  # it is there
                raise

    def cancel(self, token: str) -> None:
        """Nothing is made of it any more; one that is not there, or has ended, is no error."""
        request = self.find(token)
        if request is not None and request.is_waiting:
            self._ask("POST", f"/{PREFIX}{token}/cancel")

    def _ask(self, method: str, end: str) -> None:
        try:
            self._session.compute(method, self._path + end)
        except RestFault as fault:
            if fault.status not in (400, 404):  # gone or ended meanwhile
                raise
