"""Answers of the interface: JSON, compressed where large, and errors as a status with words."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from longboat.core.errors import EngineError, JobError, LongboatError, NotFound, Refused, UsageError, WaitTimeout
from longboat.kubeapi.errors import Forbidden

SMALL = 1024
"""Bytes that are not worth compressing."""
STATUS: tuple[tuple[type[LongboatError], int], ...] = (
    (NotFound, 404),
    (Refused, 409),
    (UsageError, 400),
    (JobError, 400),
    (WaitTimeout, 504),
    (EngineError, 502),
)


HERE, ALL_PLACES, SIMULATIONS, READERS = "/here", "/every place", "/simulations", "/readers"
"""Kinds of work besides the places, whose names hold no slash: what is in memory, asks all of them, computes, asks who
may read."""
MOST_AT_ONCE, MOST_WAITING = 12, 24
"""Requests of one kind: a page makes six at once. More of them would take the connections of everybody else."""
Result = TypeVar("Result")


class Rejected(LongboatError):
    """A request that the server itself refuses, with its status."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def status_of(error: LongboatError) -> int:
    if isinstance(error, Rejected):
        return error.status
    if isinstance(error, Forbidden):
        return 403
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def json_answer(request: Request, data: object, status: int = 200) -> Response:
    content = msgspec.json.encode(data)
    headers = {"content-type": "application/json", "vary": "accept-encoding"}
    if len(content) > SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, 1)
        headers["content-encoding"] = "gzip"
    return Response(content, status_code=status, headers=headers)


class Threads:
    """Threads for blocking work, each kind of it with its own number: a place that hangs takes only its own."""

    def __init__(self) -> None:
        self._limiters: dict[str, CapacityLimiter] = {}
        self._asked: Counter[str] = Counter()  # by kind: at work, and waiting

    async def run(self, kind: str, work: Callable[[], Result]) -> Result:
        """`kind`: the name of the place that is asked, or one of the above. Raises Rejected where too many wait."""
        if self._asked[kind] >= MOST_AT_ONCE + MOST_WAITING:
            raise Rejected(503, "too many requests like this one wait already", hint="a place that is slow to answer?")
        if kind not in self._limiters:
            self._limiters[kind] = CapacityLimiter(MOST_AT_ONCE)  # in the loop that it belongs to
        self._asked[kind] += 1
        try:
            return await to_thread.run_sync(work, limiter=self._limiters[kind])
        finally:
            self._asked[kind] -= 1

    async def answer(self, request: Request, kind: str, work: Callable[..., object], *args: object) -> Response:
        """The JSON of what a blocking function gives, packed in the same thread: the loop serves everybody else."""
        return await self.run(kind, lambda: json_answer(request, work(*args)))


def error_answer(request: Request, error: LongboatError) -> Response:
    return json_answer(request, {"error": error.message, "hint": error.hint}, status_of(error))


Handler = Callable[[Request], Awaitable[Response]]


async def on_error(request: Request, error: Exception) -> Response:
    """For starlette: every error of ours in words."""
    assert isinstance(error, LongboatError)
    return error_answer(request, error)


async def on_fault(request: Request, error: Exception) -> Response:
    """What nobody thought of: in words too, and with its stack on stderr (starlette raises it again)."""
    text = f"the dashboard failed: {type(error).__name__}: {error}"
    return json_answer(request, {"error": text, "hint": "its log says where"}, 500)


async def on_missing(request: Request, error: Exception) -> Response:
    return json_answer(request, {"error": "there is nothing at this address", "hint": None}, 404)


def params_of(request: Request) -> dict[str, list[str]]:
    """The query, every name with all its values."""
    return {name: request.query_params.getlist(name) for name in request.query_params}


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a POST; empty where there is none."""
    content = await request.body()
    if not content:
        return {}
    try:
        data = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise UsageError("the body is not a JSON object")
    return data
