"""Carries out a plan so that a crash between any two steps does no harm. Nothing is decided here but to leave out.

Growing: the order is written down, sent under its token, and confirmed; an order that was written and not confirmed is
sent again. Shrinking: cordon with our mark in one write; look again at the API itself, not at a copy; mark the node as
being deleted; delete the machine; remove the node. Whoever finds that mark finishes the deletion.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

import msgspec

from longboat.autoscaler.act.drain import Evictions
from longboat.autoscaler.act.idle_marks import due_marks
from longboat.autoscaler.act.pre_delete_check import Recheck, is_as_before
from longboat.autoscaler.model.backoff import closed, paused
from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.plan import ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import (
    CORDONED,
    IDLE,
    POOL_LABEL,
    UNDERUSED,
    ClusterSnapshot,
    Pool,
    ProviderFailure,
)
from longboat.autoscaler.model.turn import ActionResult
from longboat.autoscaler.observe.from_objects import Body
from longboat.autoscaler.observe.orders import (
    DELETING,
    JoinedInstances,
    OrdersChanged,
    OrderStore,
    PlacedOrder,
    failed,
    note_deletion,
    without_machine,
    worked,
)
from longboat.autoscaler.providers.provider import MachineRequest, Provider, ProviderAnswer, ProviderError
from longboat.core.errors import LongboatError
from longboat.core.times import format_time
from longboat.kubeapi.client import Client, Object
from longboat.kubeapi.errors import Conflict, LeaseExpired, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import NODE

ATTEMPTS = 3
"""Of one change of a node that sends a heartbeat in the same moment, as often as every second."""


class LeadershipLost(LongboatError):
    """Another process leads now: nothing more is ordered or deleted."""


class Actuator:
    def __init__(
        self,
        client: Client,
        config: AutoscalerConfig,
        providers: Mapping[str, Provider],
        store: OrderStore,
        *,
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client, self._store, self._config = client, store, config
        self._pools = {pool.name: pool for pool in config.pools}
        self._settings, self._providers = config.settings, providers
        self._may_work, self._settle_s = may_work, config.pace.settle_s
        self._evictions = Evictions(client, config.settings)
        self._throttled: dict[str, str] = {}  # providers that want to be asked less, since the turn began

    # growing

    def resume(self) -> list[ActionResult]:
        """Send again the orders of which it is not known whether they were taken. The first thing that a turn does."""
        self._throttled = {}
        results = []
        for order in self._store.book.orders:
            pool = self._pools.get(order.pool)  # one that left the pools file may come back, and its order with it
            if pool is not None and not order.is_confirmed and self._may_work() and not self._pause(pool):
                reason = f"an order of {format_time(order.asked)} that was not confirmed"
                action = ScalingAction(kind="grow", pool=order.pool, count=order.count, reason=reason)
                if order.is_cancelled:
                    action = ScalingAction(kind="forget", pool=order.pool, machine=f"{order.token}/0", reason=reason)
                trouble = self._cancel(pool, order.token) if order.is_cancelled else self._send(order)
                results.append(ActionResult(action=action, trouble=trouble))
        return results

    def _grow(self, action: ScalingAction) -> str:
        now = self._client.now()
        assert action.pool is not None
        zones: list[tuple[str | None, int]] = [*action.zones.items()] or [(action.zone, action.count or 0)]
        orders = [
            PlacedOrder(
                token=secrets.token_hex(8),
                pool=action.pool,
                count=count,
                asked=now,
                zone=zone,
                gang=action.runs[0] if action.runs else None,
            )
            for zone, count in zones
            if count > 0
        ]
        book = self._store.book
        for order in orders:
            book = book.with_order(order)
        self._store.save(book)
        return "; ".join(trouble for order in orders if (trouble := self._send(order)))

    def _send(self, order: PlacedOrder) -> str:
        pool = self._pools[order.pool]
        pause = self._pause(pool)
        if pause:  # since it was decided
            self._store.save(self._store.book.without(order.token))
            return pause
        self._need_leadership()
        request = MachineRequest(token=order.token, count=order.count, zone=order.zone, spot=pool.spot)
        try:
            made = self._providers[pool.provider].grow(pool, request)
        except ProviderError as error:
            self._take_back(pool, order, error)
            return error.message
        book = worked(self._store.book, pool, order.zone)
        machines = tuple(dict.fromkeys((*order.machines, *(instance.id for instance in made))))
        # Written with what the next turn sees of it; after a crash before that the same order is sent again.
        self._store.note(book.with_order(msgspec.structs.replace(order, machines=machines, is_confirmed=True)))
        return ""

    def _take_back(self, pool: Pool, order: PlacedOrder, error: ProviderError) -> None:
        """What may have been made of it is found in the provider's list."""
        book = failed(self._store.book, self._refusal(pool, error, order.zone))
        # Who wants to be asked less is not asked more; an order that is sent again must not be cancelled.
        if error.kind != "throttled" and not error.is_unsettled:
            self._store.save(book.with_order(msgspec.structs.replace(order, count=0)))
            self._cancel(pool, order.token)
            return
        # Machines may be on their way: `resume` sends it again under its token, a new one would buy them twice.
        self._store.save(book if error.is_unsettled else book.without(order.token))
        if error.kind == "throttled":
            # Also where the pause is over before the next zone's turn comes: nothing more in this turn.
            self._throttled[pool.provider] = self._pause(pool) or error.message

    def _cancel(self, pool: Pool, token: str) -> str:
        """A cancellation that did not get through stays in the book, and `resume` repeats it."""
        self._need_leadership()
        try:
            self._providers[pool.provider].shrink(pool, (), (token,))
        except ProviderError as error:  # what else it may say: the list will show what there is
            if error.kind == "throttled":
                self._store.save(failed(self._store.book, self._refusal(pool, error)))
                return error.message
        self._store.save(self._store.book.without(token))
        return ""

    def _need_leadership(self) -> None:
        """Right before a provider is asked to change something: what was decided is void once another leads."""
        if not self._may_work():
            raise LeadershipLost("another autoscaler leads now")

    def _refusal(self, pool: Pool, error: ProviderError, zone: str | None = None) -> ProviderFailure:
        new = self._config.refusal(pool.name, error.kind, self._client.now(), zone=zone)
        return msgspec.structs.replace(new, message=error.message)

    def _pause(self, pool: Pool) -> str:
        """Why nothing may be asked of its provider now."""
        if pool.provider in self._throttled:
            return self._throttled[pool.provider]
        now = self._client.now()
        pause = paused(self._store.book.failures, pool.provider, self._settings, now)
        return closed(pool, (pause,), self._settings, now)[0].reason if pause is not None else ""

    def _shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        """A machine that is not found counts as deleted. A pool whose deletions are refused does not grow, either."""
        self._need_leadership()
        try:
            self._providers[pool.provider].shrink(pool, machines, tokens)
        except ProviderError as error:
            if error.kind in ("throttled", "auth"):
                self._store.save(failed(self._store.book, self._refusal(pool, error)))
            if error.kind != "not-found":
                raise
        else:
            self._store.save(note_deletion(self._store.book, pool))
        book = self._store.book
        for machine in machines:
            book = without_machine(book, machine)
        self._store.save(book)

    # all actions of a plan

    def perform(
        self, plan: ScalingPlan, snapshot: ClusterSnapshot, seen: ProviderAnswer, blind: Mapping[str, str]
    ) -> list[ActionResult]:
        """`blind`: pools whose provider cannot be asked, with the reason; their machines are left alone."""
        recheck = Recheck(self._client, tuple(self._pools.values()), self._settings, seen, self._settle_s)
        results = []
        for action in plan.actions:
            if not self._may_work():
                break
            try:
                trouble = self._why_not(action, blind) or self._do(action, recheck)
                if trouble is not None:
                    results.append(ActionResult(action=action, trouble=trouble))
            except (Unreachable, OrdersChanged, LeaseExpired, LeadershipLost):
                raise
            except LongboatError as error:
                results.append(ActionResult(action=action, trouble=error.message))
        if self._may_work():
            self.remember(plan, snapshot)
        return results

    def _why_not(self, action: ScalingAction, blind: Mapping[str, str]) -> str:
        """Why the provider cannot be called for this action; empty: it can."""
        if action.pool not in self._pools or action.kind not in ("grow", "delete", "forget"):
            return ""
        return blind.get(action.pool) or self._pause(self._pools[action.pool])

    def _do(self, action: ScalingAction, recheck: Recheck) -> str | None:
        """None: it was done before, and the copy that was decided on did not show it yet."""
        if action.kind == "grow":
            return self._grow(action)
        if action.kind == "forget":
            return self._forget(action)
        assert action.node is not None
        body = self._client.find(NODE, action.node)
        if body is None:
            return None
        if action.kind == "cordon":
            return self._cordon(body)
        if action.kind == "uncordon":
            return self._uncordon(body)
        if action.kind == "drain":
            return self._evictions.drain(body, self._client.now())
        return self._delete(body, recheck)

    # nodes

    def _change(self, body: Object, spec: Object, annotations: Mapping[str, str | None]) -> str:
        """Patch the node at the observed version; retried on a conflict if only the heartbeat has changed."""
        name, seen = body["metadata"]["name"], body
        for _ in range(ATTEMPTS):
            meta = {"resourceVersion": seen["metadata"]["resourceVersion"], "annotations": dict(annotations)}
            try:
                self._client.patch(NODE, name, {"metadata": meta, **({"spec": spec} if spec else {})})
                return ""
            except ObjectNotFound:
                return ""
            except Conflict:
                node = self._client.find(NODE, name)
                if node is None:
                    return ""
                if not is_as_before(seen, node):
                    break
                seen = node
        return "the node has changed in this moment; looked at again in the next loop"

    def _cordon(self, body: Object) -> str:
        if (body.get("spec") or {}).get("unschedulable"):
            return "" if CORDONED in _annotations(body) else "somebody else has cordoned it"
        return self._change(body, {"unschedulable": True}, {CORDONED: format_time(self._client.now())})

    def _uncordon(self, body: Object) -> str:
        if CORDONED not in _annotations(body):
            return "the cordon is not ours any more"
        if DELETING in _annotations(body):
            return "its machine is being deleted"
        return self._change(body, {"unschedulable": None}, {CORDONED: None})

    def _delete(self, body: Object, recheck: Recheck) -> str:
        if DELETING not in _annotations(body):
            trouble = recheck.why_stay(body)
            if trouble:
                return trouble
            now = format_time(self._client.now())
            marks = {DELETING: now, CORDONED: _annotations(body).get(CORDONED, now)}
            trouble = self._change(body, {"unschedulable": True}, marks)
            if trouble:
                return trouble
        # A binding that was under way when the mark was written has arrived by now, or will not be believed.
        trouble = recheck.why_occupied(body)
        if trouble:
            self._remove_mark(body["metadata"]["name"])
            return trouble
        self._remove(body, recheck)
        return ""

    def _remove_mark(self, node: str) -> None:
        """Remove the deletion mark of a node that stays after all: it is decided anew in the next turn."""
        body = self._client.find(NODE, node)
        if body is not None and DELETING in _annotations(body):
            self._change(body, {}, {DELETING: None})

    def _keep(self, node: str) -> None:
        """Give a node back whose machine the provider does not let go: not tried again before it was idle anew."""
        body = self._client.find(NODE, node)
        if body is not None:
            spec = {"unschedulable": None} if CORDONED in _annotations(body) else {}
            self._change(body, spec, dict.fromkeys((DELETING, CORDONED, IDLE, UNDERUSED)))

    def _remove(self, body: Object, recheck: Recheck) -> None:
        """Delete the machine of a marked node, with what belongs to it, then the Node object."""
        meta = body["metadata"]
        pool = self._pools[meta["labels"][POOL_LABEL]]
        try:
            self._shrink(pool, (recheck.machine_of(body),))
        except ProviderError as error:
            if error.kind == "min-size":
                self._keep(meta["name"])
            raise
        self._client.delete(NODE, meta["name"], uid=meta["uid"])

    def finish(self, nodes: Sequence[Body], seen: ProviderAnswer, blind: Mapping[str, str]) -> list[ActionResult]:
        """Deletions that somebody began."""
        results = []
        recheck = Recheck(self._client, tuple(self._pools.values()), self._settings, seen, self._settle_s)
        for copy in nodes:
            meta = copy["metadata"]
            pool = (meta.get("labels") or {}).get(POOL_LABEL)
            if DELETING not in _annotations(copy) or pool not in self._pools or pool in blind or not self._may_work():
                continue
            action = ScalingAction(kind="delete", node=meta["name"], pool=pool, reason="its deletion had begun")
            body = self._client.find(NODE, meta["name"])
            if body is None or DELETING not in _annotations(body):
                continue
            there = recheck.why_not_finish(body)
            if there:
                self._remove_mark(meta["name"])
                results.append(ActionResult(action=action, trouble=there))
                continue
            try:
                self._remove(body, recheck)
                results.append(ActionResult(action=action))
            except ProviderError as error:
                results.append(ActionResult(action=action, trouble=error.message))
        return results

    # machines that never joined

    def _forget(self, action: ScalingAction) -> str:
        assert action.machine is not None and action.pool is not None
        pool, book = self._pools[action.pool], self._store.book
        token, _, number = action.machine.rpartition("/")
        order = book.order(token) if number.isdecimal() else None
        if order is not None:
            self._shrink(pool, (), (order.token,))
            ended = msgspec.structs.replace(order, count=len(order.machines), is_confirmed=True)
            self._store.save(self._store.book.with_order(ended))
            return ""
        nodes = self._client.list(NODE, labels=f"{POOL_LABEL}={pool.name}").items
        named = ((node["metadata"]["name"], (node.get("spec") or {}).get("providerID")) for node in nodes)
        if JoinedInstances(named).has(action.machine):
            return "it has joined in this moment"
        self._shrink(pool, (action.machine,))
        return ""

    # what is to be remembered

    def remember(self, plan: ScalingPlan, snapshot: ClusterSnapshot) -> None:
        """Write on the nodes what the notes say, where it is not written yet; remove marks that no longer hold."""
        is_out = {node.name: node.shape.is_unschedulable for node in snapshot.nodes}
        for before, wanted in due_marks(plan, snapshot, self._pools, self._settings.idle_s, self._client.now()):
            if before.cordoned_at is not None and not is_out.get(before.node):
                self._unmark(before.node)
            if wanted:
                self._annotate(before.node, wanted)

    def _annotate(self, node: str, wanted: Mapping[str, str | None]) -> None:
        try:
            self._client.patch(NODE, node, {"metadata": {"annotations": dict(wanted)}})
        except ObjectNotFound:
            pass

    def _unmark(self, node: str) -> None:
        """Somebody lifted our cordon: with the mark left, the next cordon of a person would be taken for ours."""
        body = self._client.find(NODE, node)
        if body is not None and CORDONED in _annotations(body) and not (body.get("spec") or {}).get("unschedulable"):
            self._change(body, {}, {CORDONED: None, DELETING: None})


def _annotations(body: Body) -> Mapping[str, str]:
    annotations: Mapping[str, str] = body["metadata"].get("annotations") or {}
    return annotations
