"""Follower: the membership of every node but node 0. It dials, reports, obeys, and is lost when it hears nothing of
node 0."""

from __future__ import annotations

import os
import time

from ..ranks.state import LauncherState
from . import messages
from .membership import FAREWELL_S, PING_S, Membership, stays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

HURRIED_S = 2.0
"""Who is being stopped does not wait for a node 0 that never came."""


class GangFollower(Membership):
    """The membership of every other node."""

    def __init__(
        self, state: LauncherState, obey: Callable[[dict[str, Any]], None], lost: Callable[[str], None]
    ) -> None:
        from .channel import Channel, Dialer
        from .handshake import read_token

        Membership.__init__(self, state, obey)
        plan = state.plan
        self._lost = lost
        self._leader = plan.peers[0]["node"]
        self._waiting_since: float | None = None
        self._channel = Channel(self.loop, self._take, min(PING_S, self.lost_s / 6))
        self._channel.on_nonsense = lambda text: self.not_understood(self._leader, text)
        self._channel.on_heard = self._heard
        self._has_heard = False
        self._greeting = {"node": plan.node, "session": os.urandom(8).hex(), "attempt": plan.attempt}
        self._greeting["new"] = plan.is_spare or (plan.again is None and plan.restart is not None)
        self._greeting["pod"] = plan.pod
        place, token = (plan.peers[0]["address"], plan.line_port), read_token(plan.line_token_file)
        self._dialer = Dialer(self.loop, place, token, self._greeting, self._channel)
        self._dialer.on_refused = self._refused
        self._dialer.on_later = self._comes_later

    def _take(self, message: dict[str, Any]) -> None:
        self._inbox.append(messages.from_leader(message))

    def _heard(self) -> None:
        self._has_heard = True
        self._greeting["new"] = self.state.plan.is_spare  # which is a member of no attempt

    def _refused(self, reason: str) -> None:
        self.is_given_up = reason == messages.GONE_ON
        if self.state.plan.is_spare:  # it is over, and was well
            self._inbox.append({"do": "end", "reason": "success", "grace_s": self.state.plan.grace_s})
            return
        self._lost("node %s: %s" % (self._leader, reason))

    def _comes_later(self, under_way: dict[str, Any]) -> None:
        plan = self.state.plan
        self._channel.heard = time.monotonic()
        is_free = plan.is_spare or not self._has_heard
        if is_free and plan.attempt < int(under_way["attempt"]) <= int((plan.restart or {}).get("count") or 0):
            self.later = under_way

    def tell(self, message: dict[str, Any]) -> None:
        self._channel.send(message)

    def ready(self) -> None:
        self._waiting_since = time.monotonic()
        self.tell({"is": "ready"})

    def check(self, now: float) -> None:
        if self._has_heard and now - self._channel.heard > self.lost_s:
            self._lost("nothing was heard of node %s for %g s" % (self._leader, self.lost_s))

    def waited_in_vain(self) -> bool:
        plan, since = self.state.plan, self._waiting_since
        # Of an attempt that was restarted node 0 is there, or has ended.
        limit_s = self.lost_s if plan.is_spare and plan.again is not None else plan.wait_timeout_s
        return not self._has_heard and since is not None and time.monotonic() - since > limit_s

    def missing(self) -> list[str]:
        return [] if self._has_heard else [self._leader]

    def problem(self) -> str:
        return "" if self._channel.is_up else self._dialer.problem

    def shift(self, gap_s: float) -> None:
        self._channel.heard += gap_s

    def _until(self, begun: float) -> float:
        """The deadline for reaching node 0, which must learn of a failure even if it starts after this node failed."""
        if self._has_heard:
            return self._channel.heard + self.lost_s
        failure = self.state.failure
        is_news = failure is not None and failure.cause not in ("peers", "preemption", "lost")
        return begun + (self.state.plan.wait_timeout_s if is_news and not self.is_hurried else HURRIED_S)

    def wait_for_end(self) -> None:
        channel, begun = self._channel, time.monotonic()
        while not channel.is_idle and not self._is_outside() and time.monotonic() < self._until(begun):
            self.loop.turn()
        is_awaited = (self.state.plan.ends_together or stays(self.state)) and not self.is_hurried
        # if node 0 restarts the others, which wait for no spare
        is_replaced = self.is_leaving and self.state.plan.restart is not None and not self.state.plan.is_spare
        if (is_awaited or is_replaced) and self.state.is_over:
            self._wait_for_others()
        self.loop.cancel("line")
        self._dialer.close()

    def _is_outside(self) -> bool:
        """Whether node 0 has not let it in, or does not wait for it: there is nobody to tell."""
        return self._dialer.is_refused or self.later is not None or self.state.plan.is_spare

    def _wait_for_others(self) -> None:
        """Wait until node 0 orders a restart or, when all nodes have ended, closes the connection: no longer than it
        waits itself.

        A JobSet deletes, when the Job of one role has failed, the pods of those roles that have not ended yet, and
        their logs with them. If all end at the same moment, nothing is left to delete.
        """
        plan, channel = self.state.plan, self._channel
        until = time.monotonic() + plan.grace_s + self.lost_s + FAREWELL_S
        while self.restart is None and channel.is_up and time.monotonic() < min(until, channel.heard + self.lost_s):
            self.loop.turn()
