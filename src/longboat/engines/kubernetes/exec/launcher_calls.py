"""Calls to the launcher in a pod, by exec: stop, dump stacks, report the state of its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longboat.engines.kubernetes.manifests.volumes import NODE, ROOT
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.streams.exec import BoundedOutput, run_in_pod

LAUNCHER = ("python3", "-I", "-S", f"{ROOT}/launcher/launcher.pyz")
TELL_S = 8.0
"""A launcher that cannot be reached within this is not told: its pod is deleted instead."""
MOST_RESTARTS = 100  # of one pod, the latest: an answer is anybody's word
MOST_ANSWER = 4 << 20  # a rank takes about 300 bytes of it
MOST_TEXT, MOST_NODES, MOST_RANKS, MOST_METRICS = 4096, 10_000, 4096, 100  # an answer is anybody's word
ASK_S = 2.0
"""`status` shows what it knows by then. A node that is lost but not yet known to be keeps the API server waiting."""


def tell(client: Client, pod: str, *words: str) -> bool:
    """Whether the launcher was reached: `tell(client, pod, "stop", "30")`."""
    return _call(client, pod, ["--tell", NODE, *words], TELL_S) is not None


def ask_status(client: Client, pod: str, most_bytes: int = MOST_ANSWER) -> dict[str, Any] | None:
    """What the launcher says about its ranks; None where it cannot be asked, or says more."""
    answer = _call(client, pod, ["--status", NODE], ASK_S, most_bytes)
    if answer is None:
        return None
    try:
        status = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return checked(status) if isinstance(status, dict) else None


def checked(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with what can be used of it. It comes out of an image of somebody else's: anything may be in it."""
    fields: dict[str, Any] = {}
    for name in ("phase", "checkpoint", "resumed_from"):
        if isinstance(raw.get(name), str):
            fields[name] = raw[name][:MOST_TEXT]
    ranks = raw.get("ranks")
    for name in ("missing", "problems"):
        if isinstance(raw.get(name), list):
            fields[name] = [text[:MOST_TEXT] for text in raw[name][:MOST_NODES] if isinstance(text, str)]
    for name in ("attempt", "began"):
        if _is_sane(raw.get(name)):
            fields[name] = raw[name]
    if isinstance(raw.get("restarts"), list):
        fields["restarts"] = [_restart(each) for each in raw["restarts"][-MOST_RESTARTS:] if isinstance(each, dict)]
    if isinstance(raw.get("gpus"), list):
        fields["gpus"] = raw["gpus"]  # read by `metrics.usage`, as the usage of ranks is
    if isinstance(ranks, dict):
        known = [(name, facts) for name, facts in ranks.items() if _is_number(name) and isinstance(facts, dict)]
        fields["ranks"] = {name: _rank(facts) for name, facts in known[:MOST_RANKS]}
    return fields


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10


def _restart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt that ended before this one in the same pod (`termination.EarlierEnd`)."""
    known: dict[str, Any] = {name: value[:MOST_TEXT] for name, value in facts.items() if isinstance(value, str)}
    known.update((name, value) for name, value in facts.items() if _is_sane(value))
    replaced, spares = facts.get("replaced"), facts.get("spares")
    if isinstance(replaced, list):
        known["replaced"] = [name[:MOST_TEXT] for name in replaced[:MOST_NODES] if isinstance(name, str)]
    if isinstance(spares, dict):
        pairs = list(spares.items())[:MOST_NODES]
        known["spares"] = {node[:MOST_TEXT]: pod[:MOST_TEXT] for node, pod in pairs if isinstance(pod, str)}
    return known


def _rank(facts: Mapping[str, Any]) -> dict[str, Any]:
    rank: dict[str, Any] = {"alive": bool(facts.get("alive")), "usage": facts.get("usage")}
    for name in ("step", "silent_s", "exit_code", "started"):
        if _is_sane(facts.get(name)):
            rank[name] = facts[name]
    metrics = facts.get("metrics")
    if isinstance(metrics, dict):
        pairs = list(metrics.items())[:MOST_METRICS]
        rank["metrics"] = {name[:200]: value for name, value in pairs if _is_sane(value)}
    return rank


def _is_sane(value: object) -> bool:
    """A number that can be computed with and shown. Compared before it is made a float: an int may be too large."""
    return isinstance(value, (int, float)) and abs(value) < 1 << 62


def _call(client: Client, pod: str, words: Sequence[str], within_s: float, most: int = MOST_ANSWER) -> bytes | None:
    out = BoundedOutput(most)
    try:
        code = run_in_pod(client, pod, [*LAUNCHER, *words], stdout=out, timeout_s=within_s, connect_s=within_s)
    except ApiError:
        return None
    return out.getvalue() if code == 0 and not out.is_cut else None
