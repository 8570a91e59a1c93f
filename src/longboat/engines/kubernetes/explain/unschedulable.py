"""Unschedulable pods: why no node takes one, and what an autoscaler does about it, in plain words. Pure.

Where nodes may be listed, each is asked by the rules of `longboat.fitting`, with numbers; else the scheduler's own
message is put into words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.core.words import counted
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import is_gpu, show, show_number
from longboat.fitting.model.requests import clashes
from longboat.fitting.node_state import NodeState
from longboat.fitting.pod_affinity import AffinityView
from longboat.fitting.predicates import placing_refusals

MOST_NAMED = 3  # one line
_AVAILABLE = re.compile(r"^\d+/(\d+) nodes are available: (.*?)(?:\.(?: .*)?)?$", re.S)
_ITEM = re.compile(r"^(\d+) (.+)$", re.S)
_TAINT = re.compile(r"node\(s\) had untolerated taint(?:\(s\))? ?\{?([^}]*)\}?")
_SCALE_UP = re.compile(r"\{(\S+) (\d+)->(\d+) \(max: (\d+)\)\}")
_WORDS = (
    ("node affinity/selector", "their labels are not those asked for"),
    ("volume node affinity conflict", "the volume lies in another zone or on another node"),
    ("were unschedulable", "cordoned"),
    ("Too many pods", "no room for another pod"),
    ("free ports", "a port it needs is taken"),
    ("pod anti-affinity", "a pod is there that it must not be beside"),
    ("pod affinity", "the pods are not there that it must be beside"),
    ("topology spread", "it would not be spread as asked for"),
    ("exceed max volume count", "no further volume can be attached"),
    ("find available persistent volumes", "no volume there fits the claim"),
    ("cannot allocate all claims", "no free device"),
)


def node_reasons(pod: Pod, fleet: Fleet) -> list[str]:
    """Per node why not, in groups, the largest first: `3 nodes: not enough nvidia.com/gpu (0 free of 8, 4 wanted)`."""
    lacking: dict[tuple[str, bool], list[tuple[str, int, int]]] = {}
    fixed: dict[str, list[str]] = {}
    for state in fleet.states.values():
        refusals = placing_refusals(pod.shape.placing, state.shape)
        short = [] if refusals else _short_of(pod, state)
        for resource, free, there in short[:1]:
            lacking.setdefault((resource, there > 0), []).append((state.name, free, there))
        if not refusals and not short:
            refusals = _crowded(pod, state, fleet)
        if refusals:
            fixed.setdefault("; ".join(refusals), []).append(state.name)
    groups = [
        ([name for name, _, _ in seen], _shortage(pod, resource, [(free, there) for _, free, there in seen]))
        for (resource, _), seen in lacking.items()
    ]
    groups += [(named, reason) for reason, named in fixed.items()]
    groups.sort(key=lambda group: (-len(group[0]), group[1]))
    return [f"{nodes_named(named)}: {reason}" for named, reason in groups]


def _short_of(pod: Pod, state: NodeState) -> list[tuple[str, int, int]]:
    """(resource, free, allocatable) of everything there is too little of, GPUs first."""
    lacking = [
        (resource, max(0, state.free.get(resource, 0)), state.shape.has(resource))
        for resource, wanted in pod.shape.requests
        if wanted > max(0, state.free.get(resource, 0))
    ]
    return sorted(lacking, key=lambda item: (not is_gpu(item[0]), item[0]))


def _shortage(pod: Pod, resource: str, seen: list[tuple[int, int]]) -> str:
    if not any(there for _, there in seen):
        return f"no {resource} there"
    frees, theres = [free for free, _ in seen], [there for _, there in seen]
    free, there = _span(resource, frees), _span(resource, theres)
    return f"not enough {resource} ({free} free of {there}, {show_number(resource, pod.shape.asks(resource))} wanted)"


def _span(resource: str, counts: list[int]) -> str:
    low, high = show_number(resource, min(counts)), show_number(resource, max(counts))
    return low if low == high else f"{low} to {high}"


def _crowded(pod: Pod, state: NodeState, fleet: Fleet) -> list[str]:
    if state.room <= 0:
        return ["no room for another pod"]
    port = clashes(pod.shape.ports, state.ports)
    if port is not None:
        return [f"port {port[2]} is taken"]
    return list(AffinityView(pod, fleet).refusals(state))


def nodes_named(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{len(names)} nodes"
    return f"node{'s' if len(names) > 1 else ''} " + ", ".join(sorted(names))


def scheduler_reasons(message: str) -> list[str]:
    """The scheduler's own message in words."""
    match = _AVAILABLE.match(message.strip())
    if not match:
        return [_plain(message)] if message.strip() else []
    items: list[str] = []
    for part in re.split(r", (?=\d+ )", match[2]):
        item = _ITEM.match(part.strip())
        items.append(f"{counted(int(item[1]), 'node')}: {_reason(item[2])}" if item else _plain(part))
    return items


def _reason(text: str) -> str:
    text = text.strip()
    if text.startswith("Insufficient "):
        return f"not enough {text.removeprefix('Insufficient ')}"
    taint = _TAINT.match(text)
    if taint:
        return f"taint {taint[1].rstrip(': ')} is not tolerated" if taint[1] else "a taint there is not tolerated"
    return next((words for key, words in _WORDS if key in text), _plain(text))


def _plain(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    if "unbound immediate PersistentVolumeClaims" in text:
        return "a volume claim is not bound"
    missing = re.search(r'persistentvolumeclaim "([^"]+)" not found', text)
    if missing:
        return f"there is no claim {missing[1]}"
    return text[:300]


def autoscaler_words(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """What an autoscaler said about pods: cluster-autoscaler, Karpenter, or our own."""
    last_words: dict[str, None] = {}
    for event in events:
        reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
        source = str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")
        words = _autoscaler_word(reason, message, source)
        if words:
            last_words.pop(words, None)
            last_words[words] = None
    return list(last_words)


def _autoscaler_word(reason: str, message: str, source: str) -> str | None:
    if reason == "TriggeredScaleUp":
        grown = [
            f"{name.rpartition('/')[2]} from {old} to {new} (at most {most})"
            for name, old, new, most in _SCALE_UP.findall(message)
        ]
        return "the autoscaler adds nodes: " + (", ".join(grown) or message)
    if reason == "NotTriggerScaleUp":
        why = message.partition(":")[2].strip()
        return "the autoscaler adds no node: " + (
            ", ".join(_scale_reason(part) for part in why.split(", ")) or "no pool would help"
        )
    if reason in ("FailedToScaleUpGroup", "ScaleUpFailed", "ScaleUpTimedOut"):
        return f"the autoscaler could not add a node: {_plain(message)}"
    if source.startswith("karpenter"):
        if reason == "Nominated":
            return f"karpenter adds a node for it: {_plain(message)}"
        if reason in ("FailedScheduling", "InsufficientCapacityError", "NoCompatibleInstanceTypes"):
            return f"karpenter adds no node: {_plain(message)}"
    if source.startswith("longboat"):
        return f"the autoscaler: {_plain(message)}"
    return None


def _scale_reason(part: str) -> str:
    item = _ITEM.match(part.strip())
    count, text = (int(item[1]), item[2]) if item else (0, part.strip())
    if "max node group size reached" in text:
        words = "at its maximum size"
    elif "in backoff" in text:
        words = "failed lately and is not tried again yet"
    else:
        words = _reason(text)
    return f"{counted(count, 'pool')} {words}" if item else words


def asked_words(pod: Pod) -> str:
    """What a pod asks for: `4 nvidia.com/gpu, 8 CPUs`."""
    ranked = sorted(pod.shape.requests, key=lambda item: (not is_gpu(item[0]), item[0]))
    return ", ".join(show(name, count) for name, count in ranked)
