"""Words with the launcher in a pod, by exec: tell it to stop or to take stacks, ask how its ranks are."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec

from longboat.engines.kubernetes.api.client import Client
from longboat.engines.kubernetes.api.errors import ApiError
from longboat.engines.kubernetes.api.streams import run_in_pod
from longboat.engines.kubernetes.storage import NODE, ROOT

LAUNCHER = ("python3", "-I", "-S", f"{ROOT}/launcher/launcher.pyz")
TELL_S = 8.0
"""A launcher that cannot be reached within this is not told: its pod is deleted instead."""
ASK_S = 2.0
"""`status` shows what it knows by then. A node that is lost but not yet known to be keeps the API server waiting."""


def tell(client: Client, pod: str, *words: str) -> bool:
    """Whether the launcher was reached: `tell(client, pod, "stop", "30")`."""
    return _call(client, pod, ["--tell", NODE, *words], TELL_S) is not None


def ask_status(client: Client, pod: str) -> dict[str, Any] | None:
    """What the launcher says about its ranks; None where it cannot be asked."""
    answer = _call(client, pod, ["--status", NODE], ASK_S)
    if answer is None:
        return None
    try:
        found = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _call(client: Client, pod: str, words: Sequence[str], within_s: float) -> bytes | None:
    out = io.BytesIO()
    try:
        code = run_in_pod(client, pod, [*LAUNCHER, *words], stdout=out, timeout_s=within_s, connect_s=within_s)
    except ApiError:
        return None
    return out.getvalue() if code == 0 else None
