"""The Azure provider: machines of virtual machine scale sets, those of AKS's pools or one's own.

An order raises the capacity of a set and writes its token into the set's tags, by one request that Azure takes only if
nobody has changed the set meanwhile. What becomes of it is told by the set and its machines. Machines are deleted one
by one, by their numbers, and stay listed until their disk and network interface are gone too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.azure.leftovers import DeletedMachines
from longboat.autoscaler.providers.azure.machines import VmSize, pool_of
from longboat.autoscaler.providers.azure.scale_sets import (
    MACHINE_ID,
    ScaleSet,
    SetFacts,
    SetMachine,
    ended,
    tokens_of,
    with_cancelled,
    with_order,
)
from longboat.autoscaler.providers.azure.set_requests import SetRequests
from longboat.autoscaler.providers.azure.shares import Share, groups_of, shares_of
from longboat.autoscaler.providers.provider import (
    Description,
    DiscoveredPools,
    Instance,
    MachineRequest,
    ProviderAnswer,
    ProviderError,
    Refusal,
    describe_pool,
)
from longboat.clouds.machine_types import shipped_table
from longboat.clouds.rest import Body, RestAnswer, RestFault, fault_of
from longboat.core.words import counted

ATTEMPTS = 4  # of a change that meets somebody else's
LOOKS_S = (0.0, 1.0)
"""When an operation is looked at right after it began: what fails later is told by the next list."""


class AzureProvider:
    def __init__(self, name: str, settings: CloudSettings) -> None:
        self.name, self.settings = name, settings
        self._sets = SetRequests(name, settings)
        self._deleted = DeletedMachines(self._sets.session)

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        machines: list[Instance] = []
        refusals: list[Refusal] = []
        for pool, each in self._sets.sets_of({pool.name for pool in pools}):
            there = self._sets.machines(each)
            owners = tokens_of(each.orders, there)
            kept = f"its scale set is at its min of {each.min}" if 0 < each.min >= each.capacity else ""
            machines += [_instance(machine, pool, owners.get(machine.number), kept) for machine in there]
            refusals += self._refusals(each, pool, [*owners.values()])
            with self._sets.errors():
                machines += self._deleted.look(each.path, pool, {machine.provider_id for machine in there})
        return ProviderAnswer(machines=tuple(machines), refusals=tuple(refusals))

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        token, attempts = request.token, ATTEMPTS
        refusals: dict[str, ProviderError] = {}  # by the path of a set that is not asked again for this order
        while attempts > 0:
            sets, now, there = self._look(pool, request)
            if any(token in each.cancelled for each in sets):
                return ()
            missing = request.count - sum(each.ordered(token) for each in sets)
            shares = self._shares(pool, request, sets, missing, refusals) if missing > 0 else ()
            if not shares:  # all that is to come is taken
                made = [self._made(each, pool, token, there[each.path]) for each in sets if each.ordered(token)]
                return tuple(machine for machines in made for machine in machines)
            taken = []
            for each, more in shares:
                try:
                    taken.append(self._order(each, token, more, now))
                except ProviderError as error:
                    if error.kind != "stockout":
                        raise
                    refusals[each.path] = error
                    break
            if len(taken) < len(shares):
                continue  # each set once
            if None not in taken:
                mine = {each.path for each, _ in shares} | {each.path for each in sets if each.ordered(token)}
                return self._known(pool, token, sorted(mine)) if all(taken) else ()
            attempts -= 1
        raise self._sets.contended(sets[0])

    def _order(self, each: ScaleSet, token: str, more: int, now: int) -> bool | None:
        """True: it is carried out. False: it is taken. None: somebody has changed the set meanwhile."""
        answer = self._sets.change(each, with_order(each, token, each.ordered(token) + more, now))
        return None if answer is None else self._follow(each, answer)

    def _known(self, pool: Pool, token: str, paths: Sequence[str]) -> tuple[Instance, ...]:
        """Machines of an order that has just been carried out; none where Azure cannot be asked now."""
        known: tuple[Instance, ...] = ()
        with suppress(ProviderError):
            for path in paths:
                each, _ = self._sets.read(path)
                known += self._made(each, pool, token, self._sets.machines(each))
        return known

    def _shares(
        self,
        pool: Pool,
        request: MachineRequest,
        sets: Sequence[ScaleSet],
        missing: int,
        refusals: Mapping[str, ProviderError],
    ) -> Sequence[Share]:
        """Where the rest of an order goes; empty: nowhere, and some of it stands. Raises ProviderError if none does."""
        groups = groups_of(sets, request.token, request.zone)
        for group in groups:
            asked = [each for each in group if each.path not in refusals]  # Azure may say no before it takes a change
            if shares := shares_of(asked, request.token, missing):
                return shares
        if refusals:  # what some sets took stays: the list tells it
            raise [*refusals.values()][-1]
        if any(each.ordered(request.token) for each in sets):
            return ()
        if not groups:
            message = f"no scale set of the pool {pool.name} has the zone {request.zone}"
            raise ProviderError(f"provider {self.name}: {message}", kind="stockout")
        where = f" in {request.zone}" if request.zone else ""
        full = ", ".join(f"{each.name} has {each.capacity} of at most {each.max}" for group in groups for each in group)
        message = f"the scale sets of the pool {pool.name} have no room for {counted(missing, 'machine')}: {full}"
        raise ProviderError(f"provider {self.name}: stockout{where}: {message}", kind="stockout")

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        if tokens:
            self._cancel(pool, tokens)
        by_set: dict[str, list[str]] = {}
        for machine in machines:
            match = MACHINE_ID.fullmatch(machine)
            if match:
                by_set.setdefault(match["set"].lower(), []).append(match["number"])
        refusal: ProviderError | None = None
        for each in [each for _, each in self._sets.sets_of({pool.name})] if by_set else ():
            numbers = by_set.get(each.path.lower(), ())
            with self._sets.errors():
                self._deleted.delete(each.path, numbers)
            refusal = self._delete(each, numbers) or refusal  # the machines of other sets go all the same
        if refusal is not None:
            raise refusal

    def describe(self, pool: Pool) -> Description:
        return describe_pool(pool, self.discover())

    def discover(self) -> DiscoveredPools:
        self._sets.forget_cluster()
        sizes: dict[str, VmSize] = {}
        locations: set[str] = set()
        by_pool: dict[str, list[tuple[ScaleSet, SetFacts]]] = {}
        notes = []
        table = shipped_table("azure")
        for each in self._sets.sets():
            facts = self._sets.facts_of(each)
            if facts.pool is not None and each.location not in locations:
                sizes |= self._sets.sizes(each.location)
                locations.add(each.location)
            problem = _problem(each, facts, sizes)
            if problem:
                notes.append(f"scale set {each.name} is left alone: {problem}")
                continue
            assert facts.pool is not None
            by_pool.setdefault(facts.pool, []).append((each, facts))
            if each.type not in table.machines:
                notes.append(
                    f"pool {facts.pool}: the table of prices has no {each.type}: it counts as the dearest there is"
                )
            if len(each.zones) > 1:
                notes.append(
                    f"pool {facts.pool}: the scale set {each.name} lies in several zones, Azure chooses among them; "
                    "a set for each zone, with the same label, keeps a gang together"
                )
        pools = tuple(pool_of(name, self.name, mine, sizes, table) for name, mine in sorted(by_pool.items()))
        return DiscoveredPools(pools=pools, notes=tuple(notes))

    def _look(
        self, pool: Pool, request: MachineRequest
    ) -> tuple[Sequence[ScaleSet], int, Mapping[str, Sequence[SetMachine]]]:
        """All sets that the order may go to, as they are now, with Azure's clock and machines where they matter.

        The order may have filled a set by an earlier try whose answer was lost: another set would make it once more.
        """
        known = [each for _, each in self._sets.sets_of({pool.name})]
        if not known:
            message = f"provider {self.name}: Azure has no scale set of the pool {pool.name}"
            raise ProviderError(message, kind="not-found")
        able = [each for each in known if each.ordered(request.token) or request.zone in (None, each.zone)]
        sets, now = [], 0
        machines: dict[str, tuple[SetMachine, ...]] = {}
        for before in able or known[:1]:
            each, now = self._sets.read(before.path)
            if each.is_failed or each.ordered(request.token):
                machines[each.path] = self._sets.machines(each)
            if each.is_failed:  # its capacity has machines that were never made
                each = self._sets.settled(each, machines[each.path])
            sets.append(each)
        return sets, now, machines

    def _follow(self, each: ScaleSet, answer: RestAnswer) -> bool:
        """Whether an order that was taken is carried out; it stays taken whatever cannot be asked now.

        Raises ProviderError if it has failed.
        """
        address = answer.headers.get("azure-asyncoperation", "")
        for pause in LOOKS_S if address else ():
            time.sleep(pause)
            operation: Body = {}
            with suppress(RestFault):
                operation = self._sets.session.follow(address).body
            if operation.get("status") in ("Failed", "Canceled"):
                error = self._sets.error(fault_of(200, operation.get("error") or {}), each.zone)
                with suppress(ProviderError):
                    self._end(each.path, error)
                raise error
            if operation.get("status") == "Succeeded":
                return True
        return not address

    def _end(self, path: str, error: ProviderError) -> None:
        """After a growth that failed: what is there is the goal, and machines that failed are deleted."""
        for _ in range(ATTEMPTS):
            each, _now = self._sets.read(path)
            there = self._sets.machines(each)
            failed = [machine for machine in there if machine.state == "failed"]
            alive = [machine for machine in there if machine.state != "failed"]
            # Its capacity still has those that failed: deleting them lowers it, and nobody else is chosen.
            capacity = self._sets.settled(each, there).capacity
            goal = msgspec.structs.replace(ended(each, alive, error.kind), capacity=capacity)
            if self._sets.change(each, goal) is not None:
                if failed:
                    with self._sets.errors():
                        self._sets.delete(each, [machine.number for machine in failed])
                return

    def _made(self, each: ScaleSet, pool: Pool, token: str, machines: Sequence[SetMachine]) -> tuple[Instance, ...]:
        owners = tokens_of(each.orders, machines)
        return tuple(
            _instance(machine, pool.name, token, "") for machine in machines if owners.get(machine.number) == token
        )

    def _cancel(self, pool: Pool, tokens: Sequence[str]) -> None:
        """Write down, on all sets of the pool, that nothing is to be made of these orders.

        The capacity of a set that Azure is working on stays: made smaller now, it would choose whom to delete.
        Raises ProviderError if a set does not have the note in the end: an order that comes late would be carried out.
        """
        refusal: ProviderError | None = None
        for _, known in self._sets.sets_of({pool.name}):
            each = known
            for _ in range(ATTEMPTS):
                goal = self._sets.settled(each, self._sets.machines(each)) if each.is_failed else each
                goal = with_cancelled(goal, tokens)
                if self._sets.change(each, goal) is not None:
                    break
                each, _now = self._sets.read(each.path)
            else:
                refusal = self._sets.contended(each)  # the other sets get their note all the same
        if refusal is not None:
            raise refusal

    def _delete(self, each: ScaleSet, numbers: Sequence[str]) -> ProviderError | None:
        """A refusal: some stay, because the set may not lose them."""
        if not numbers:
            return None
        there = {machine.number: machine for machine in self._sets.machines(each) if machine.state != "stopping"}
        wanted = [number for number in numbers if number in there]
        going = wanted[: max(each.capacity - each.min, 0)]
        if going:
            with self._sets.errors(each.zone):
                self._sets.delete(each, going)
            self._deleted.expect(each.path, [there[number] for number in going])
        if len(going) < len(wanted):
            message = f"provider {self.name}: min-size: the scale set {each.name} is at its min of {each.min}"
            return ProviderError(message, kind="min-size")
        return None

    def _refusals(self, each: ScaleSet, pool: str, owners: Sequence[str]) -> Iterator[Refusal]:
        """Orders that were taken and came to nothing, in whole or in part."""
        short = [order for order in each.orders if order.refused or owners.count(order.token) < order.count]
        failure = (
            self._sets._failure(each, self._sets._view(each))
            if each.is_failed and any(not order.refused for order in short)
            else None
        )
        for order in short:
            if order.refused:
                yield Refusal(pool=pool, kind=order.refused, token=order.token, zone=each.zone, message=order.refused)
            elif failure is not None:
                yield Refusal(pool=pool, kind=failure.kind, token=order.token, zone=each.zone, message=failure.message)


def _problem(each: ScaleSet, facts: SetFacts, sizes: Mapping[str, VmSize]) -> str:
    """Why a set cannot be a pool."""
    if facts.pool is None:
        return "its nodes have no label longboat.dev/pool"
    if facts.is_managed:
        return "AKS's own autoscaler changes its size; az aks nodepool update --disable-cluster-autoscaler ends that"
    if each.type not in sizes:
        return f"Azure does not know its size {each.type} in {each.location}"
    return "" if each.max is not None else "it has no tag max: how many machines it may have"


def _instance(machine: SetMachine, pool: str, token: str | None, kept: str) -> Instance:
    return Instance(
        id=machine.provider_id,
        pool=pool,
        state=machine.state,
        zone=machine.zone,
        created=machine.created,
        token=token,
        node=machine.node,
        message=f"{machine.code}: {machine.message}" if machine.code else machine.message,
        kept=kept,
    )
