"""Probes of a replica: whether it answers, and whether its answers are the golden ones of its checkpoint.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import http.client
import json
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longboat.serving.golden import GoldenCases

PROBE_S = 5.0
"""A replica that takes longer to say that it is well is not."""
ANSWER_S = 120.0
"""The first answer of a model may compile it."""
_NOT_YET = (502, 503, 504)
"""What servers say that are still loading."""
MOST_ANSWER = 16 << 20
"""Bytes of an answer that are read and compared."""


def check_answers(host: str, port: int, path: str | None) -> str | None:
    """Why the replica may not be asked; None: it may. Without a path: whether it accepts connections."""
    try:
        if path is None:
            socket.create_connection((host, port), PROBE_S).close()
            return None
        status, _ = _request(host, port, "GET", path, None, PROBE_S)
    except (OSError, http.client.HTTPException) as error:
        return reason_of(error, port)
    return None if 200 <= status < 400 else f"{path} answers {status}"


def check_golden(host: str, port: int, golden: GoldenCases, tolerance: float | None = None) -> str | None:
    """The first golden case that the replica answers otherwise, with the difference; None: all agree.

    Raises OSError or HTTPException where it does not answer at all, which says nothing about its checkpoint.
    """
    from longboat.serving.golden import difference

    allowed = golden.tolerance if tolerance is None else tolerance
    for number, (given, expected) in enumerate(golden.cases, 1):
        case = f"golden case {number} of {len(golden.cases)} (POST {golden.path})"
        try:
            status, data = _request(host, port, "POST", golden.path, json.dumps(given).encode(), ANSWER_S)
            if status in _NOT_YET:
                raise http.client.HTTPException(f"{case}: status {status}")
            if status != 200:
                return f"{case}: answered with status {status}"
            answer = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            return f"{case}: the answer is not JSON"
        try:
            problem = difference(expected, answer, allowed)
        except RecursionError:
            problem = "the answer is nested too deeply to be compared"
        if problem:
            return f"{case}: {problem}"
    return None


def _request(host: str, port: int, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        headers = {"Connection": "close", "User-Agent": "longboat-probe"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read(MOST_ANSWER)
    finally:
        connection.close()


def reason_of(error: Exception, port: int) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on port {port} ($PORT)"
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "no answer in time"
    if isinstance(error, http.client.HTTPException):
        return "no HTTP answer: %s" % (str(error) or type(error).__name__)
    return str(getattr(error, "strerror", None) or error)
