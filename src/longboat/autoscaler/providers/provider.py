"""The provider interface: how the autoscaler lists, makes and deletes machines; its values and errors.

Promises, tested by one suite over every provider:
1. `list` shows every machine that exists or is being made, also one that has not joined, and changes nothing.
2. `grow` may return before the machines exist. The same token never makes a second set of machines, however often it is
   asked and from whichever process; asked again, it finishes what was begun.
3. `shrink` deletes exactly these machines with everything that belongs to them (disks, addresses), and lowers the
   group's wanted size where there is one, so that nobody makes them again. One that is not there is no error. One
   that its group may not lose is a `min-size`: it stays, all others are deleted.
4. A machine's `id` is the `spec.providerID` of its node where the machine sets one, else the node's name; a provider
   that knows another name of the node says so in `node`.
5. What the other side refuses is a ProviderError with its kind. An order that is accepted and fails later is a Refusal
   in `list`, under its token. An order that may still be carried out although there was no answer, or that was and
   could not be finished, is `is_unsettled`: it is sent again under the same token.

A cloud's provider also discovers pools: a group of machines there is a pool, and the cloud describes what a machine
offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from longboat.autoscaler.model.pools_file import UNSTATED
from longboat.autoscaler.model.snapshot import FailureKind, Pool
from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.fitting.model.quantities import CPU

MachineState = Literal["pending", "running", "stopping", "failed"]
KINDS: tuple[FailureKind, ...] = ("stockout", "quota", "auth", "throttled", "not-found", "min-size", "other")


class ProviderError(EngineError):
    """The other side refused or could not be asked; `kind` says what to do about it."""

    def __init__(
        self, message: str, *, kind: FailureKind = "other", hint: str | None = None, is_unsettled: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind: FailureKind = kind
        self.is_unsettled = is_unsettled  # the order may be, or is, carried out: only its own token may ask again


class Instance(Value, frozen=True):
    """One machine of a pool, as the provider sees it."""

    id: str
    pool: str
    state: MachineState = "running"
    zone: str | None = None
    created: float | None = None
    token: str | None = None  # of the order it was made for
    node: str | None = None  # name of its node, where that is not the id
    message: str = ""  # why it failed
    kept: str = ""  # why the provider would refuse to delete it now


class Refusal(Value, frozen=True):
    """An order that was accepted and came to nothing, in whole or in part."""

    pool: str
    kind: FailureKind
    token: str | None = None
    zone: str | None = None
    message: str = ""


class ProviderAnswer(Value, frozen=True):
    machines: tuple[Instance, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class MachineRequest(Value, frozen=True):
    """So many machines in one zone, or wherever the provider likes."""

    token: str
    count: int
    zone: str | None = None
    spot: bool = False


class Description(Value, frozen=True):
    """What a machine of a pool will offer, as far as the provider knows: checked against the pools file."""

    allocatable: dict[str, str] = {}  # in Kubernetes' notation
    labels: dict[str, str] = {}
    zones: tuple[str, ...] = ()
    spot: bool | None = None
    max: int | None = None
    price: float | None = None


class DiscoveredPools(Value, frozen=True):
    pools: tuple[Pool, ...] = ()
    notes: tuple[str, ...] = ()  # what is left alone, and why


class Provider(Protocol):
    """Called by one thread. Every call ends, by an answer or by a ProviderError."""

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer: ...

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        """The machines of this order that are known already; all, some or none of them."""
        ...

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        """Delete these machines; of these orders, make nothing that does not exist yet."""
        ...

    def describe(self, pool: Pool) -> Description: ...


class DiscoveringProvider(Provider, Protocol):
    """A provider that knows its pools by itself."""

    def discover(self) -> DiscoveredPools: ...


def describe_pool(pool: Pool, discovered: DiscoveredPools) -> Description:
    """What discovery says about this pool."""
    there = next((each for each in discovered.pools if each.name == pool.name), None)
    if there is None:
        raise ProviderError(f"the cloud has no pool {pool.name}", kind="not-found")
    has = there.machine.allocatable
    return Description(
        allocatable={name: f"{count}m" if name == CPU else str(count) for name, count in has if count < UNSTATED},
        labels=dict(there.machine.labels),
        zones=there.zones,
        spot=there.spot,
        max=there.max,
        price=there.price,
    )
