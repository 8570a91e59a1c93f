"""Repeats calls of kubectl on a control plane while its API server does not answer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from longboat.clusters.hosts.connection import CommandFailed, HostUnreachable

ANSWER_S = 300.0  # an API server that its kubelet starts anew, with cold caches
_LOOK_S = 2.0  # a restarted API server answers again after ten seconds or more
# Answers, and none that changes: of the API server about an object, or of a program that kubectl ran in a container.
_FINAL = re.compile(r"Error from server \((NotFound|AlreadyExists|Invalid)\)|command terminated with exit code")

T = TypeVar("T")


def answered(call: Callable[[], T], within_s: float = ANSWER_S) -> T:
    """What `call` returns; its last error, if there was no answer within the time. `call` must bear repetition."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return call()
        except (CommandFailed, HostUnreachable) as error:
            is_final = isinstance(error, CommandFailed) and _FINAL.search(error.result.stderr)
            if is_final or time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_S)
