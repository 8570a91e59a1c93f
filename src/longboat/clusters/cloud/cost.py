"""What a cluster in a cloud costs by the hour: machines by their table, and what the cloud charges besides. Pure."""

from __future__ import annotations

from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.jobs import Value

HOURS_PER_DAY = 24


class CostLine(Value, frozen=True):
    item: str
    count: int
    price: float
    """USD per hour, of each."""
    note: str = ""

    @property
    def per_hour(self) -> float:
        return self.count * self.price


class PlanCost(Value, frozen=True):
    lines: tuple[CostLine, ...]
    most: float
    """USD per hour with every pool at its largest."""
    note: str
    """Where and when the prices were true."""

    @property
    def per_hour(self) -> float:
        return sum(line.per_hour for line in self.lines)

    @property
    def text(self) -> str:
        """`1.58 USD per hour, about 38 USD per day if left on`."""
        text = f"{money(self.per_hour)} USD per hour, about {self.per_hour * HOURS_PER_DAY:,.0f} USD per day if left on"
        return f"{text}; at most {money(self.most)} USD per hour" if self.most > self.per_hour else text


def money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 0.01 else f"{amount:.4f}"


def plan_cost(spec: CloudSpec, table: MachineTable, fixed: tuple[CostLine, ...]) -> PlanCost:
    """The cost of the file's counts. Spot machines are counted at the price on demand, the most that they can cost."""
    lines = [
        CostLine(
            item=f"pool {pool.name}: {pool.type}",
            count=pool.count,
            price=table.machines[pool.type].price,
            note="spot: at most" if pool.spot else "",
        )
        for pool in spec.pools
    ]
    grown = sum((pool.max - pool.count) * table.machines[pool.type].price for pool in spec.pools)
    now = sum(line.per_hour for line in (*fixed, *lines))
    return PlanCost(lines=(*fixed, *lines), most=now + grown, note=table.note)
