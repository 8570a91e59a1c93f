"""Scale down: the state of every node, and which are cordoned, uncordoned, drained or deleted. Pure.

A machine leaves in steps, one loop each: cordon (with our mark), look again, drain where there is something to move,
delete. Whatever speaks against it in between lifts the cordon.
"""

from __future__ import annotations

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.plan import NodeNote, NodeState, ScalingAction
from longboat.autoscaler.model.snapshot import POOL_LABEL, Pool, SeenPod
from longboat.autoscaler.scale_down.consolidation import consolidate
from longboat.autoscaler.scale_down.node_usage import NodeTenants
from longboat.autoscaler.scale_down.replacement import Replacements
from longboat.autoscaler.scale_down.state import ScaleDownState
from longboat.autoscaler.scale_up.relocation import moves_off
from longboat.core.times import format_time, show_age
from longboat.core.words import counted


class ScaleDown(ScaleDownState):
    def run(self) -> tuple[list[ScalingAction], list[NodeNote]]:
        ready: list[NodeTenants] = []
        ours: list[NodeTenants] = []
        for machine in self.machines:
            if machine.condition == "ready" and machine.pool is not None and machine.cordon != "person":
                tenants = NodeTenants(machine, self.pods.get(machine.name, ()), self.settings, self.now)
                (ours if machine.cordon == "ours" else ready).append(tenants)
            else:
                self._set_aside(machine)
        used = [tenants for tenants in ready if not tenants.is_idle]
        self._cordoned(ours)
        replacements = Replacements(used, self)
        replacements.claim()
        self._idle([tenants for tenants in ready if tenants.is_idle])
        consolidate(used, self)
        replacements.replace()
        order = {"uncordon": 0, "delete": 1, "drain": 2, "cordon": 3}
        self.actions.sort(key=lambda action: (order.get(action.kind, 9), action.node or action.machine or ""))
        return self.actions, [self.notes[name] for name in sorted(self.notes)]

    def _set_aside(self, machine: Machine) -> None:
        """Nodes that are not ours to shrink, or not ready."""
        if machine.order is not None:
            if machine.condition == "failed":
                self.act("forget", machine, machine.reason)
        elif machine.pool is None:
            label = machine.node.pool if machine.node else None
            why = f"its pool {label} is not in the pools file" if label else f"it has no label {POOL_LABEL}"
            self.note(machine, "unmanaged", why if machine.condition != "failed" else f"{why}; it is not ready")
        elif machine.condition == "going":
            self.note(machine, "draining", machine.reason)
        elif machine.cordon == "person":
            self.note(
                machine,
                "cordoned-by-person",
                f"cordoned, and not by us (no annotation of ours): left alone{_also(machine)}",
            )
        elif machine.condition == "failed":
            self._failed(machine)
        elif machine.cordon == "ours":
            self._booting_ours(machine)
        else:
            waiting = self.growth.needed.get(machine.name)
            self.note(machine, "booting", machine.reason + (f"; needed by {waiting}" if waiting else ""))

    def _booting_ours(self, machine: Machine) -> None:
        if machine.name in self.growth.uncordons:
            self.act("uncordon", machine, self.growth.uncordons[machine.name])
            self.note(machine, "booting", f"{machine.reason}; {self.growth.uncordons[machine.name]}")
        else:
            self.note(machine, "idle-unschedulable", f"cordoned by us; {machine.reason}")

    def _failed(self, machine: Machine) -> None:
        tenants = NodeTenants(machine, self.pods.get(machine.name, ()), self.settings, self.now)
        alive = [seen_pod for seen_pod in tenants.work if not seen_pod.pod.is_terminating]
        stays = next(
            (f"pod {pod.name} is bound to it: {pod.kept_now(self.now)}" for pod in alive if pod.kept_now(self.now)), ""
        )
        if alive and machine.node is not None and machine.node.is_ready and not stays:
            stays = f"pod {alive[0].name} runs there"
        reason = tenants.kept() or stays
        if reason:
            self.note(machine, "failed", f"{machine.reason}; not deleted: {reason}")
        elif self.act("delete", machine, f"failed: {machine.reason}"):
            self.note(machine, "failed", f"{machine.reason}: deleted, and replaced if it is needed")
        else:
            self.note(machine, "failed", f"{machine.reason}: deleted when max_shrink_per_loop allows")

    def _cordoned(self, ours: list[NodeTenants]) -> None:
        """Nodes with our cordon: look again, then go on or lift it."""
        self.drains -= sum(1 for tenants in ours if tenants.work and tenants.is_leaving)
        for node_tenants in ours:
            reason = self._why_lift(node_tenants)
            if reason:
                self.act("uncordon", node_tenants.machine, reason)
                state: NodeState = "busy" if node_tenants.work else "idle"
                self.note(
                    node_tenants.machine,
                    state,
                    f"our cordon is lifted: {reason}",
                    idle=node_tenants.idle_since() if node_tenants.is_idle else None,
                )
                if node_tenants.machine.pool is not None and node_tenants.name not in self.growth.uncordons:
                    self.staying[node_tenants.machine.pool.name] += 1
            elif node_tenants.work or node_tenants.expendable:
                self._drain(node_tenants)
            else:
                self._delete(node_tenants)

    def _why_lift(self, tenants: NodeTenants) -> str:
        if tenants.name in self.growth.uncordons:
            return self.growth.uncordons[tenants.name]
        if tenants.kept():
            return tenants.kept()
        pool = tenants.machine.pool
        if pool is not None and self.staying[pool.name] < pool.min:
            return f"the pool's min is {pool.min}"
        if tenants.is_idle or tenants.is_leaving:
            return ""
        if pool is not None and pool.zero_or_max:
            return "pods run here, and the pool has all of its machines or none"
        if tenants.unmovable():
            return tenants.unmovable()
        pods = [each for each in tenants.work if not each.pod.is_terminating]
        blocked = self.allowances.why_not(pods)
        if blocked and not any(each.pod.is_terminating for each in tenants.work):
            return blocked
        moves = moves_off(tenants.name, (each.pod for each in pods), self.fleets.ready)
        if isinstance(moves, str):
            target = Replacements([tenants], self).ready_machine(tenants)
            if target is None:
                return f"pod {moves} would find no place elsewhere"
            moves = [(each.pod, target) for each in pods]
        self.relocate(moves)
        return ""

    def _drain(self, tenants: NodeTenants) -> None:
        if tenants.is_leaving:
            self.note(
                tenants.machine,
                "draining",
                f"{counted(len(tenants.work) + len(tenants.expendable), 'pod')} on the way out",
            )
            return
        pods = [each for each in tenants.work if not each.pod.is_terminating]
        text = f"{counted(len(tenants.work) + len(tenants.expendable), 'pod')} to be moved"
        if self.drains <= 0:
            self.note(tenants.machine, "draining", f"cordoned by us; {text} when fewer nodes are drained (max_drains)")
        elif self.act("drain", tenants.machine, f"cordoned by us {_ago(tenants, self.now)}; {text}"):
            self.drains -= 1
            self.allowances.take(pods)
            self.note(tenants.machine, "draining", f"cordoned by us {_ago(tenants, self.now)}; {text}")
        else:
            self.note(tenants.machine, "draining", f"cordoned by us; {text} when max_shrink_per_loop allows")

    def _delete(self, tenants: NodeTenants) -> None:
        memory = tenants.machine.memory
        idle = tenants.idle_since()
        pool = tenants.machine.pool
        text = f"idle and cordoned by us {_ago(tenants, self.now)}"
        if memory is not None and memory.cordoned_at is not None and memory.cordoned_at > self.now:
            self.note(tenants.machine, "idle-unschedulable", f"{text}; looked at again in the next loop", idle=idle)
        elif pool is not None and pool.zero_or_max and not self._are_all_leaving(pool):
            self.note(
                tenants.machine, "idle-unschedulable", f"{text}; goes when all machines of {pool.name} go", idle=idle
            )
        elif self.act("delete", tenants.machine, text):
            self.note(tenants.machine, "idle-unschedulable", f"{text}: deleted", idle=idle)
        else:
            self.note(
                tenants.machine, "idle-unschedulable", f"{text}; deleted when max_shrink_per_loop allows", idle=idle
            )

    def _are_all_leaving(self, pool: Pool) -> bool:
        mine = [machine for machine in self.machines if machine.pool is not None and machine.pool.name == pool.name]
        return all(
            machine.condition == "failed" or (machine.cordon == "ours" and not self.growth.uncordons.get(machine.name))
            for machine in mine
        ) and not any(
            each.pod.node == machine.name and _works(each)
            for machine in mine
            for each in self.pods.get(machine.name, ())
        )

    def _idle(self, idle: list[NodeTenants]) -> None:
        due: dict[str, list[NodeTenants]] = {}
        for tenants in idle:
            since = tenants.idle_since()
            pool = tenants.machine.pool
            assert pool is not None
            waiting = self.growth.needed.get(tenants.name)
            if waiting:
                self.note(tenants.machine, "idle", f"nothing runs here, but {waiting} waits for it")
            elif tenants.name in self.reserved:
                reason = f"nothing runs here yet: {self.reserved[tenants.name]}"
                self.note(tenants.machine, "idle", reason, idle=since or self.now)
            elif tenants.kept():
                self.note(tenants.machine, "protected", f"idle, but {tenants.kept()}", idle=since or self.now)
            elif (until := self._kept_until(tenants)) > self.now:
                run = self.growth.kept[tenants.name][0]
                reason = f"nothing runs here; kept until {format_time(until)}: {run} may take it at its next checkpoint"
                self.note(tenants.machine, "spare", reason, idle=since or self.now)
            elif since is None and self.settings.idle_s > 0 and self._is_new(tenants, pool):
                self.note(tenants.machine, "grace-period", f"joined {self._joined(tenants)} ago", idle=self.now)
            elif self.now - (since or self.now) < self.settings.idle_s:
                left = self.settings.idle_s - (self.now - (since or self.now))
                how = f"for {show_age(self.now - since)}" if since is not None else "as of now"
                self.note(
                    tenants.machine,
                    "idle",
                    f"nothing runs here {how}; removed after another {show_age(left)}",
                    idle=since or self.now,
                )
            else:
                due.setdefault(pool.name, []).append(tenants)
        for name in sorted(due):
            self._retire(name, due[name])

    def _kept_until(self, tenants: NodeTenants) -> float:
        """Until when it waits for an elastic run that may grow onto it; 0: it does not."""
        _, wait_s = self.growth.kept.get(tenants.name, ("", 0.0))
        return (tenants.idle_since() or self.now) + wait_s if wait_s else 0.0

    def _is_new(self, tenants: NodeTenants, pool: Pool) -> bool:
        node = tenants.machine.node
        since = node.ready_since or node.created if node is not None else 0.0
        return self.now - since < max(self.settings.idle_s, pool.boot_s)

    def _joined(self, tenants: NodeTenants) -> str:
        node = tenants.machine.node
        return show_age(self.now - (node.ready_since or node.created)) if node is not None else ""

    def _retire(self, name: str, due: list[NodeTenants]) -> None:
        """Cordon machines of one pool that were idle for long enough, as many as may go."""
        pool = due[0].machine.pool
        assert pool is not None
        why_not = ""
        count = len(due)
        if name in self.growth.bought:
            count, why_not = 0, "the pool grows in this very loop"
        elif name in self.growth.soon:
            count, why_not = 0, self.growth.soon[name]
        elif pool.zero_or_max:
            whole = len(due) == self.staying[name] and not pool.min
            count, why_not = (
                (count, "") if whole else (0, "other machines of this pool are in use, and it has all or none")
            )
        room = self.staying[name] - self.booting.get(name, 0) - pool.min
        if count > room:
            count, why_not = max(room, 0), f"the pool's min is {pool.min}"
        spare = self.idle_count(name) - self.settings.spare
        if not pool.zero_or_max and count > spare:
            count, why_not = max(spare, 0), f"{counted(self.settings.spare, 'spare machine')} kept"
        zones: dict[str | None, int] = {}
        for machine in self.machines:
            if machine.pool is not None and machine.pool.name == name and machine.condition in ("ready", "booting"):
                zones[machine.zone] = zones.get(machine.zone, 0) + 1
        left = list(due)
        while left:
            tenants = min(
                left, key=lambda each: (-zones.get(each.machine.zone, 0), each.idle_since() or self.now, each.name)
            )
            left.remove(tenants)
            zones[tenants.machine.zone] = zones.get(tenants.machine.zone, 0) - 1
            self._cordon_idle(tenants, count > 0, why_not)
            count -= 1

    def _cordon_idle(self, tenants: NodeTenants, may_go: bool, why_not: str) -> None:
        since = tenants.idle_since()
        pool = tenants.machine.pool
        how = f"nothing runs here for {show_age(self.now - since)}" if since is not None else "nothing runs here"
        if not may_go:
            self.note(tenants.machine, "spare", f"{how}; kept: {why_not}", idle=since or self.now)
        elif self.act("cordon", tenants.machine, f"{how} (idle: {show_age(self.settings.idle_s)})"):
            if pool is not None:
                self.staying[pool.name] -= 1
            self.note(tenants.machine, "idle", f"{how}: cordoned", idle=since or self.now)
        else:
            self.note(tenants.machine, "idle", f"{how}; goes when max_shrink_per_loop allows", idle=since or self.now)


def _works(pod: SeenPod) -> bool:
    return pod.daemon is None and not pod.pod.is_finished


def _also(machine: Machine) -> str:
    return f"; {machine.reason}" if machine.reason else ""


def _ago(tenants: NodeTenants, now: float) -> str:
    memory = tenants.machine.memory
    if memory is None or memory.cordoned_at is None:
        return ""
    return f"{show_age(now - memory.cordoned_at)} ago"
