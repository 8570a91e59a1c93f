"""Membership of a node in its gang: what it tells node 0, what it does when node 0 says so. Node 0 is one too.

The words of the line are here: a node says that it is `ready`, how each rank ended (`report`), that a rank is silent
(`stalled`), that it has `ended`, that it was asked to `stop` or to `save` or was `evicted`; node 0 says `go`, `end`,
`dump`, `save` and `restart`.
Deciding is the work of `coordinator`, carrying that of `channel`.
"""

from __future__ import annotations

import abc
import time

from ..node.jsonfiles import dumps
from ..node.plan import shared_path
from ..ranks.state import LauncherState, NodeFailure
from . import messages
from .coordinator import EXIT_SETUP, Coordinator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .channel import Channel, ChannelListener
    from .coordinator import Order

STACKS_MAX = 50_000  # of one rank: some hundred frames; 900 kB are left for the rest of a report
REPORT_MAX = 900_000
"""A frame holds 1 MiB (`handshake`)."""
PING_S = 5.0
"""Or a sixth of the time after which a node counts as lost, where that is short."""
DUMP_S = 15.0
"""Taking stacks takes up to 10 s (`stack_dump.ALL_S`), which is no silence."""
ASLEEP_S = 5.0
"""A gap this long between two ticks is this machine's own sleep, not the silence of others."""
HUNG_UP_S = 5.0
"""A launcher whose connection was closed dials again within a second, if it lives; one that waits for the end of a gang
does not wait longer for it."""
SPARED_S = 2.0
"""Where spares wait they take the places of the cut off while ranks run. A node 0 told to stop waits so long, too."""
ASKED_S = 5.0
"""Who calls anew does so every second, and is told that the gang has ended."""
FAREWELL_S = 2.0
"""Until all has arrived everywhere; a peer that has gone already is not waited for longer."""
AGE_MAX_S = 5.0  # a report waits at most for its connection to come back
_OUTCOME_KEYS = ("exit_code", "cause", "message", "ended_by", "tail")


class Membership(abc.ABC):
    """A node's part in the gang, common to leader and followers."""

    def __init__(self, state: LauncherState, obey: Callable[[dict[str, Any]], None]) -> None:
        self.state = state
        self.loop = state.loop
        self.lost_s = state.plan.line_lost_s
        self.is_going = False
        self.is_hurried = False  # this pod is being taken away
        self.is_leaving = False  # and has said so, as a spare or as a member of a gang whose ranks had started
        self.is_given_up = False  # node 0 has gone on without it
        self.later: dict[str, Any] | None = None  # of a new pod: the attempt under way, of which it is no member yet
        self.restart: dict[str, Any] | None = None  # node 0's order to go on with another attempt, in the same pods
        self.stalled: Callable[[], tuple[int, float] | None] = lambda: None
        self._obey = obey
        self._inbox: list[dict[str, Any]] = []
        self._told: dict[int, tuple[object, ...]] = {}  # rank -> what its report said when it was told
        self._told_stall = False
        self._puzzling: set[str] = set()
        self._ticked = time.monotonic()
        self._tick_s = min(1.0, self.lost_s / 6)
        self.loop.on_turn = self.look
        self.loop.after("line", self._tick_s, self._tick)

    def not_understood(self, node: str, text: str) -> None:
        """Report an invalid message, whose connection was closed; once for each member."""
        if node not in self._puzzling:
            self._puzzling.add(node)
            self.state.say("node %s is not understood: %s" % (node, text[:200]))

    @abc.abstractmethod
    def tell(self, message: dict[str, Any]) -> None: ...

    @abc.abstractmethod
    def check(self, now: float) -> None:
        """Look for silent members; called about once a second."""

    @abc.abstractmethod
    def missing(self) -> list[str]:
        """Nodes that have not joined yet."""

    def waited_in_vain(self) -> bool:
        """Whether node 0 never answered within the limit."""
        return False

    def problem(self) -> str:
        """Why node 0 cannot be reached at present, as the system reports it."""
        return ""

    @abc.abstractmethod
    def shift(self, gap_s: float) -> None:
        """Discount a pause of this process from the silence of others."""

    @abc.abstractmethod
    def wait_for_end(self) -> dict[str, Any] | None:
        """Wait after this node has ended: node 0 for all nodes, returning the verdict; others until node 0 knows."""

    def ready(self) -> None:
        self.tell({"is": "ready"})

    def ended(self, outcome: dict[str, Any]) -> None:
        self.look()
        sender = self.state.sender
        kept = {key: outcome.get(key) for key in _OUTCOME_KEYS}
        kept["stays"] = stays(self.state) and not self.is_hurried
        self.tell({"is": "ended", "outcome": kept, "newest": None if sender is None else sender.newest_step()})

    def stop(self, grace_s: float | None) -> None:
        self.tell({"is": "stop", "grace_s": grace_s})

    @property
    def gets_another(self) -> bool:
        """Whether this pod's Job is to make another one: node 0 goes on, and takes it as a member or as a spare."""
        plan = self.state.plan
        if plan.is_spare or self.is_given_up:
            return plan.restart is not None and bool(plan.spares) and (self.is_leaving or self.is_given_up)
        return self.is_leaving and self.restart is not None

    def evicted(self) -> None:
        self.is_leaving = self.is_going or self.state.plan.is_spare
        self.tell({"is": "evicted"})

    def dump(self) -> None:
        self.tell({"is": "dump"})

    def look(self) -> None:
        """Report news and carry out orders. Runs after all other callbacks, so that reports are complete."""
        state = self.state
        reports = [rank.report for rank in state.ranks if rank.report is not None]
        first = state.failure.first if state.failure else None
        if first is not None and all(report is not first for report in reports):
            reports.append(first)  # mpirun's culprit may be on another node
        for report in sorted(reports, key=lambda each: int(str(each.get("ended_ns") or 0))):
            self._tell_report(report)
        stall = self.stalled()
        if stall is not None and not self._told_stall:
            self._told_stall = True
            self.tell({"is": "stalled", "rank": stall[0], "silent_s": stall[1]})
        while self._inbox:
            self._obey(self._inbox.pop(0))

    def _tell_report(self, report: dict[str, object]) -> None:
        rank = int(str(report["rank"]))
        says = (report.get("ended_by"), report.get("cause"), bool(report.get("stacks")))
        if self._told.get(rank) != says:
            self._told[rank] = says
            sent = {**report, "stacks": str(report.get("stacks") or "")[:STACKS_MAX]}
            if len(dumps(sent)) > REPORT_MAX:  # a frame has its bounds, and few letters of some scripts fill it
                sent = {**sent, "stacks": "", "traceback": "", "tail": []}
            age_s = (time.monotonic_ns() - int(str(report.get("ended_ns") or 0))) / 1e9
            self.tell({"is": "report", "report": sent, "age_s": min(AGE_MAX_S, max(0.0, age_s))})

    def _tick(self) -> None:
        now = time.monotonic()
        gap_s = now - self._ticked - self._tick_s
        self._ticked = now
        if gap_s > ASLEEP_S:
            self.shift(gap_s)
        self.loop.after("line", self._tick_s, self._tick)
        self.check(now)


class GangLeader(Membership):
    """The membership of node 0, which coordinates."""

    def __init__(self, state: LauncherState, obey: Callable[[dict[str, Any]], None]) -> None:
        Membership.__init__(self, state, obey)
        plan = state.plan
        nodes = [peer["node"] for peer in plan.peers]
        self.coordinator = Coordinator(nodes, plan.deciding, plan.grace_s)
        self.coordinator.heard(plan.node, time.monotonic())
        self._asking: set[str] = set()  # new launchers that have called, and come again
        self._ready_spares: list[str] = []  # in the order in which they came
        self._told_spares: set[str] = set()  # that have reached this one, and know of its end
        self._listens_since = time.monotonic()
        self._channels = {node: self._channel(node) for node in [*nodes, *plan.spares] if node != plan.node}
        self._listener: ChannelListener | None = None
        self._waiting_since: float | None = None
        if self._channels:
            from .channel import ChannelListener
            from .handshake import read_token

            token = read_token(plan.line_token_file)
            self._listener = ChannelListener(self.loop, plan.address, plan.line_port, token, self._channels)
            again = plan.again or {}
            self._listener.under_way = {"attempt": plan.attempt, "ended": messages.told_of(again)}
            self._listener.under_way["places"] = again.get("places") or {}
            self._listener.replaces = plan.restart is not None
            self._listener.on_stranger = self._stranger
            self._listener.takes_place = self._takes_place
            self._listener.on_refused = self._refused
            self._listener.on_later = self._prepares
            self._listener.acceptor.on_refused = state.refused

    def _channel(self, node: str) -> Channel:
        from .channel import Channel

        def take(message: dict[str, Any]) -> None:
            self._take(node, messages.from_node(message))

        channel = Channel(self.loop, take, min(PING_S, self.lost_s / 6))
        channel.on_nonsense = lambda text: self.not_understood(node, text)
        if node in self.state.plan.spares:
            channel.on_heard = lambda: self._told_spares.add(node)
            return channel
        channel.on_heard = lambda: self._heard(node)
        channel.on_break = lambda: self.coordinator.broke(node)
        return channel

    def _refused(self, node: str) -> None:
        self._asking.discard(node)
        self._told_spares.add(node)

    def _heard(self, node: str) -> None:
        self._asking.discard(node)
        self.coordinator.heard(node, time.monotonic())

    def tell(self, message: dict[str, Any]) -> None:
        self._take(self.state.plan.node, message)

    def ready(self) -> None:
        self._waiting_since = time.monotonic()
        self.tell({"is": "ready"})

    def _take(self, node: str, message: dict[str, Any]) -> None:
        """Handle a message of a node; an invalid one closes its connection."""
        kind, coordinator, now = message["is"], self.coordinator, time.monotonic()
        orders: list[Order] = []
        if node in self.state.plan.spares and kind not in ("stop", "save"):
            self._set_spare(node, kind == "ready")
        elif kind == "ready":
            orders = coordinator.ready(node, shared_path(self.state.plan, self.state.plan.resume_from))
            if orders:
                self._begin()
        elif kind == "report":
            # How long the node took to say it, by its own clock: a busy node is not a later one.
            orders = coordinator.report(node, message["report"], now - float(message.get("age_s") or 0.0))
        elif kind == "stalled":
            orders = coordinator.stalled(int(message["rank"]), float(message["silent_s"]), now)
        elif kind == "ended":
            orders = coordinator.ended(node, {**message["outcome"], "arrival": now}, now, message.get("newest"))
        elif kind == "stop":
            grace_s = message.get("grace_s")
            orders = coordinator.stop(None if grace_s is None else float(grace_s), now)
        elif kind == "evicted":
            orders = coordinator.evicted(node, now)
        elif kind in ("dump", "save"):
            orders = coordinator.dump(now) if kind == "dump" else coordinator.save()
        self._give(orders)

    def _set_spare(self, node: str, is_ready: bool) -> None:
        """Note that a spare waits for a place, or that it does not any more: how it ended is nobody's failure."""
        self._ready_spares = [name for name in self._ready_spares if name != node] + [node] * is_ready

    def _spares(self) -> list[str]:
        """Spares that may take a place now."""
        return [name for name in self._ready_spares if self._channels[name].is_up]

    def _begin(self) -> None:
        seconds = self.state.plan.run_timeout_s
        if seconds is not None:
            self.loop.after("timeout", seconds, lambda: self._give(self.coordinator.timeout(time.monotonic(), seconds)))

    def _give(self, orders: list[Order]) -> None:
        for node, order in orders:
            if node == self.state.plan.node:
                self._inbox.append(order)
            else:
                self._channels[node].send(order)

    def _stranger(self, node: str) -> None:
        now, channel = time.monotonic(), self._channels[node]
        self._asking.add(node)
        text = "the launcher of node %s was killed or cut off, and another one has come in its place" % node
        self._give(self.coordinator.replaced(node, channel.heard, text, now))

    def _takes_place(self, node: str) -> bool:
        """Have a new launcher take the place of one before the ranks have started: nothing is lost with that one."""
        is_spare = node in self.state.plan.spares
        if not is_spare and not self.coordinator.came_anew(node):
            return False
        self._channels[node].drop()
        self._channels[node] = self._channel(node)
        self._set_spare(node, False)
        self._prepares(node)
        return True

    def _prepares(self, node: str) -> None:
        """A new pod of a member makes itself ready: it is waited for anew, as for one that is connected."""
        if node in self.state.plan.spares:
            return  # nobody waits for it
        self._asking.add(node)
        if self._waiting_since is not None:
            self._waiting_since = time.monotonic()

    def check(self, now: float) -> None:
        coordinator, plan = self.coordinator, self.state.plan
        patience_s = HUNG_UP_S if coordinator.reason is not None and not self.is_hurried else SPARED_S
        cut_off = [node for node, channel in self._channels.items() if channel.hung_up and self._is_in(node)]
        is_spared = coordinator.has_gone and len(cut_off) <= len(self._spares())  # of more it is the network
        is_hasty = is_spared or coordinator.reason is not None
        for node, channel in self._channels.items():
            if not self._is_in(node):
                continue
            if coordinator.members[node].first_heard is not None and now - channel.heard > self.lost_s:
                text = "nothing was heard of its launcher for %g s" % self.lost_s
                self._give(coordinator.lost(node, channel.heard, text, now))
            elif is_hasty and channel.hung_up and now - channel.hung_up > patience_s:
                is_replaced = bool((plan.restart or {}).get("killed"))
                give_up = coordinator.replaced if is_replaced else coordinator.lost
                self._give(give_up(node, channel.heard, "the launcher of node %s was killed" % node, now))
        waited_s = now - self._waiting_since if self._waiting_since is not None else 0.0
        if coordinator.reason is None and coordinator.unheard() and waited_s > plan.wait_timeout_s:
            self._give(coordinator.peers_missing(plan.wait_timeout_s, now))
            message = str(coordinator.verdict()["message"])
            self.state.failure = NodeFailure("peers", EXIT_SETUP, message)
            self.state.say(message)

    def _is_in(self, node: str) -> bool:
        """Whether it is a member that goes on: who has said how it ended hangs up, and no other pod comes for it."""
        return node in self.coordinator.members and not self.coordinator.members[node].is_over

    def missing(self) -> list[str]:
        return self.coordinator.missing()

    def shift(self, gap_s: float) -> None:
        for channel in self._channels.values():
            channel.heard += gap_s

    def wait_for_end(self) -> dict[str, Any]:
        coordinator = self.coordinator
        while not coordinator.is_over and (coordinator.reason is None or time.monotonic() < self._deadline()):
            self.loop.turn()
        verdict = coordinator.verdict()
        if not self.is_hurried:
            plan, ready = self.state.plan, self._spares()
            self.restart = coordinator.restart(
                plan.restart, plan.attempt, verdict, ready, (plan.again or {}).get("places")
            )
        if self.restart is not None:
            self._order_restart(self.restart)
        elif self._listener is not None:
            self._listener.is_over = True
            for node in self.state.plan.spares:
                self._channels[node].send({"do": "end", "reason": "success", "grace_s": self.state.plan.grace_s})
        self._take_leave()
        self.loop.cancel("line")
        self.loop.cancel("timeout")
        if self._listener is not None:
            self._listener.close()
        if self.restart is None:
            verdict = coordinator.verdict()  # with what came meanwhile
        return {**verdict, "reason": coordinator.reason}

    def _take_leave(self) -> None:
        """Wait until the others hang up, once they know that all has arrived, and until all who call have been told."""
        begun = time.monotonic()
        while time.monotonic() < begun + (ASKED_S if self._is_asked() else FAREWELL_S):
            if not self._is_asked() and not any(channel.is_up for channel in self._channels.values()):
                break
            self.loop.after("farewell", FAREWELL_S / 8, lambda: None)
            self.loop.turn()
        self.loop.cancel("farewell")

    def _is_asked(self) -> bool:
        """Whether somebody is to be told that the gang has ended: a new launcher that comes again, or one that dials by
        now after a restart in place."""
        spares = set(self.state.plan.spares) - self._told_spares
        is_early = bool(spares) and time.monotonic() < self._listens_since + ASKED_S
        is_again = self.state.plan.again is not None and (bool(self.coordinator.unheard()) or is_early)
        return self.restart is None and (bool(self._asking) or is_again)

    def _order_restart(self, order: dict[str, Any]) -> None:
        """Tell all. From now on nobody is let in: who comes is a launcher of the next attempt, and comes again."""
        if self._listener is not None:
            self._listener.acceptor.close()
        for node, channel in self._channels.items():
            if node in self.state.plan.spares:
                channel.drop()  # it dials, and is told by node 0 of the next attempt
            elif self.coordinator.members[node].lost_at is None:  # who was given up is not to come back
                channel.send(order)

    def _deadline(self) -> float:
        extra_s = DUMP_S if self.coordinator.reason == "hang" else 0.0
        return self.coordinator.reason_at + self.state.plan.grace_s + self.lost_s + extra_s


def stays(state: LauncherState) -> bool:
    """Whether this launcher may run the next attempt: ranks failed, here or elsewhere, and no process is left."""
    by = state.ending.by if state.ending is not None else None
    is_ended = by in ("failure", "hang", "evicted")
    return state.plan.restart is not None and is_ended and not state.loop.has_children
