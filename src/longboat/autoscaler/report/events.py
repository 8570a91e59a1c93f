"""Kubernetes events on nodes, pods and runs, and a webhook that takes `{"text": ...}` (Slack's form).

Both only tell. A cluster that takes no events or a webhook that is down is told once, and nothing waits for it.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from longboat.autoscaler.model.plan import PendingItem
from longboat.autoscaler.model.snapshot import Gang
from longboat.autoscaler.model.turn import ActionResult, LoopTurn
from longboat.autoscaler.observe.orders import NAME as MEMORY
from longboat.core.errors import LongboatError, UsageError
from longboat.core.times import format_time
from longboat.core.words import counted
from longboat.engines.lifecycle.webhook import post
from longboat.fitting.model.nodes import LEAVING
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import CONFIG_MAP, EVENT, NODE, POD, Kind

REASONS = {
    "cordon": "ScaleDown",
    "uncordon": "ScaleDownCancelled",
    "drain": "ScaleDownDrain",
    "delete": "ScaleDownDelete",
    "taint": "MachineTakenBack",
    "untaint": "MachineRunsAgain",
}
MOST_PER_TURN = 50  # a turn that says more would have its Events dropped by the API server's limit
MOST_WAITING = 100  # messages to a receiver that is down; later ones are dropped and said so
MOST_LINES = 20  # one chat message
TIMEOUT_S = 10.0  # for a receiver that does not answer; nothing of the loop waits for it
TRIES = 3  # for one message: a server that restarts is back by then, one that is down does not hold the others up
PAUSE_S = 0.5  # between tries of one message
SOURCE = "longboat-autoscaler"
Key = tuple[str, str, str, str]


class EventDraft(NamedTuple):
    """An event to be written: its object, reason, message and type."""

    kind: Kind
    namespace: str
    name: str
    reason: str
    message: str
    is_warning: bool = False
    part: str = ""  # of the object: one is told of separately for each
    uid: str = ""  # of the object, where it was seen


def events_of(turn: LoopTurn, home: str) -> Iterator[EventDraft]:
    """Events of one turn: pools in backoff, actions on nodes, pending runs and what was ordered for them."""
    for note in turn.plan.pools:
        for shut in note.backoffs:
            if shut.kind != "throttled":  # that passes within seconds
                reason = "PoolOff" if shut.until is None else "PoolBackOff"
                where = f"pool {note.pool}" + (f", zone {shut.zone}" if shut.zone is not None else "")
                yield EventDraft(CONFIG_MAP, home, MEMORY, reason, f"{where}: {shut.reason}", True, where)
    for result in turn.results:
        if result.action.node is not None:
            message = result.action.reason + (f" (not done: {result.trouble})" if result.trouble else "")
            reason = REASONS.get(result.action.kind, "Autoscaler")
            yield EventDraft(NODE, "default", result.action.node, reason, message, bool(result.trouble))
    gangs = {gang.name: gang for gang in turn.snapshot.gangs if gang.run}
    for item in turn.plan.waiting:
        yield from _about_waiting(item, gangs, turn)


def _about_waiting(item: PendingItem, gangs: Mapping[str, Gang], turn: LoopTurn) -> Iterator[EventDraft]:
    reason = "TriggeredScaleUp" if item.expected is not None else "NotTriggerScaleUp"
    namespace, _, name = (item.pod or item.run or "").partition("/")
    if item.pod is not None:
        yield EventDraft(POD, namespace, name, reason, item.reason, item.expected is None)
    elif item.run is not None and item.run in gangs:
        message = ordered_for(item, turn) or item.reason
        uid = gangs[item.run].owner
        yield EventDraft(CONFIG_MAP, namespace, name, reason, message, item.expected is None, uid=uid)


def ordered_for(item: PendingItem, turn: LoopTurn) -> str:
    """What was ordered for a run in this turn, in words for its owner; empty: nothing."""
    grown = [result.action for result in turn.results if result.action.kind == "grow" and not result.trouble]
    mine = [action for action in grown if item.run in action.runs]
    if not mine or item.expected is None:
        return ""
    counts = " and ".join(
        f"{counted(action.count or 0, 'machine')} of pool {action.pool}"
        + (" (for others too)" if len(action.runs) > 1 else "")
        for action in mine
    )
    return f"waits for {counts}, ordered at {format_time(turn.now)}, expected by {format_time(item.expected)}"


class Events:
    """A listener of the loop. What was told of an object is told again only when it has changed."""

    def __init__(self, client: Client, home: str, say: Callable[[str], None]) -> None:
        self._client, self._home, self._say = client, home, say
        self._told: dict[Key, tuple[str, bool]] = {}
        self._trouble = ""

    def failed(self, message: str) -> None:
        """A failed turn writes no events: the API server may be what failed."""

    def turned(self, turn: LoopTurn) -> None:
        now: dict[Key, tuple[str, bool]] = {}
        left = MOST_PER_TURN
        for about in events_of(turn, self._home):
            key = (about.kind.kind, f"{about.namespace}/{about.name}", about.reason, about.part)
            mark = ("" if about.reason == "TriggeredScaleUp" else about.message, about.is_warning)
            if self._told.get(key) == mark:
                now[key] = mark
            elif left > 0 and self._send(about, turn.now):
                now[key] = mark
                left -= 1
        self._told = now

    def _send(self, about: EventDraft, now: float) -> bool:
        event: dict[str, Any] = {}
        try:
            event = event_of(about, about.uid or self._uid_of(about), format_time(now))
            self._client.create(event)
        except LongboatError as error:
            if isinstance(error, ApiError) and _is_ending(error):
                return True  # the namespace is terminating, and the object of the event with it
            # Every event has another name: the same trouble is told once.
            trouble = error.message.replace(event["metadata"]["name"] if event else about.name, about.name)
            if trouble != self._trouble:
                self._say(f"an event cannot be written: {trouble}")
            self._trouble = trouble
            return False
        return True

    def _uid_of(self, about: EventDraft) -> str:
        body = self._client.find(about.kind, about.name, namespace=about.namespace)
        return str(body["metadata"]["uid"]) if body is not None else ""


def _is_ending(error: ApiError) -> bool:
    """Whether the namespace is being deleted."""
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.details.get("causes") or ())


def event_of(about: EventDraft, uid: str, now: str) -> dict[str, Any]:
    involved = {"apiVersion": about.kind.api_version, "kind": about.kind.kind, "name": about.name, "uid": uid}
    if about.kind.is_namespaced:
        involved["namespace"] = about.namespace
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{about.name[:200]}.{secrets.token_hex(8)}", "namespace": about.namespace},
        "involvedObject": involved,
        "reason": about.reason,
        "message": about.message[:1000],
        "type": "Warning" if about.is_warning else "Normal",
        "source": {"component": SOURCE},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


class Webhook:
    """A listener of the loop: what was done and what was refused, one message for a turn. Sent by a thread."""

    def __init__(self, url: str, say: Callable[[str], None], *, name: str = "") -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UsageError("the webhook's address is not an http or https address")
        self._url, self._say, self._name = url, say, name
        self._queue: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._refused: set[str] = set()
        self._last_failure = ""
        self._is_down = False
        self._thread = threading.Thread(target=self._work, name="webhook", daemon=True)
        self._thread.start()

    def turned(self, turn: LoopTurn) -> None:
        recovered = ["it works again"] if self._last_failure else []
        self._last_failure = ""
        lines = [*recovered, *(line_of(result) for result in turn.results if result.action.kind != "cordon")]
        refused = {
            f"{item.run or item.pod} waits: {item.reason}" for item in turn.plan.waiting if item.expected is None
        }
        names = {text.partition(" waits: ")[0] for text in refused}
        lines += sorted(text for text in refused if text.partition(" waits: ")[0] not in self._refused)
        self._refused = names
        if lines:
            more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
            self._put("\n".join([*lines[:MOST_LINES], *more]))

    def failed(self, message: str) -> None:
        if message != self._last_failure:
            self._put(f"the autoscaler cannot work: {message}")
        self._last_failure = message

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """What is still to be sent is sent, within reason."""
        try:
            self._queue.put(None, timeout=0.1)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _put(self, text: str) -> None:
        head = f"longboat autoscaler{f' ({self._name})' if self._name else ''}: "
        with contextlib.suppress(queue.Full):  # a webhook that is down for so long misses something
            self._queue.put_nowait(head + text)

    def _work(self) -> None:
        while (text := self._queue.get()) is not None:
            # Whatever goes wrong with one message, the thread lives: the next one may be the important one.
            for left in reversed(range(TRIES)):
                try:
                    self._post(text)
                    self._is_down = False
                    break
                except Exception as error:
                    self._note(error)
                    time.sleep(PAUSE_S if left else 0.0)

    def _note(self, error: Exception) -> None:
        if not self._is_down:
            why = getattr(error, "reason", None) or type(error).__name__
            with contextlib.suppress(Exception):
                self._say(f"the webhook at {urlsplit(self._url).hostname} cannot be told: {why}")
        self._is_down = True

    def _post(self, text: str) -> None:
        post(self._url, msgspec.json.encode({"text": text}), TIMEOUT_S)


def line_of(result: ActionResult) -> str:
    return sentence(result) + (f" - not done: {result.trouble}" if result.trouble else "")


def sentence(result: ActionResult) -> str:
    """What was done; of what was not done, what was to be done."""
    action, is_done = result.action, not result.trouble
    node, was = f"node {action.node}", "was" if is_done else "was to be"
    text = {
        "grow": f"pool {action.pool} {'grows' if is_done else 'was to grow'} by {action.count}",
        "uncordon": f"the cordon of {node} {was} lifted",
        "drain": f"pods of {node} {'were' if is_done else 'were to be'} evicted",
        "delete": f"{node} {was} removed",
        "forget": f"machine {action.machine} {was} given back",
        "taint": f"{node} {was} tainted {LEAVING}",
        "untaint": f"the taint {LEAVING} of {node} {was} removed",
    }.get(action.kind, f"{node} {was} cordoned, to be removed if nothing comes to run there")
    return f"{text}: {action.reason}"
