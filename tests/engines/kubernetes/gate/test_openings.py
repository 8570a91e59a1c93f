"""What would let a run in, as data: each sentence is what the gate says to a cluster in which that had happened."""

from __future__ import annotations

import msgspec
import pytest

from longboat.engines.kubernetes.gate.candidate import ClusterUsage, GateCandidate
from longboat.engines.kubernetes.gate.openings import openings
from tests.engines.kubernetes.gate.test_decide import NOW, bound, cluster, inside, run
from tests.fitting.bodies import GPU

TWO = {GPU: "2"}


def holder(name: str, *nodes: str, **fields: object) -> tuple[GateCandidate, list]:  # type: ignore[type-arg]
    """A run that is in, one GPU on each of these nodes."""
    namespace = str(fields.get("namespace", "default"))
    seen = [bound(f"{name}-{at}", node, holder=name) for at, node in enumerate(nodes)]
    pods = [msgspec.structs.replace(each, namespace=namespace) for each in seen]
    placed = tuple(f"worker-{at}" for at in range(len(nodes)))
    return inside(name, len(nodes), placed=placed, **fields), pods


A, A_PODS = holder("a", "n0")
B, B_PODS = holder("b", "n1")
LONG, LONG_PODS = holder("long", "n0", "n0", lasts_s=7200.0)
ASIDE = inside("aside", 1, {}, placed=("worker-0",))  # it has no GPU
LAST, LAST_PODS = holder("last", "n1")
ELSEWHERE, ELSEWHERE_PODS = holder("secret", "n0", namespace="other")
THERE, THERE_PODS = holder("hidden", "n1", namespace="third")


@pytest.mark.parametrize(
    ("me", "others", "room", "expected"),
    [
        (run("me", 1), [], cluster(gpus=1), ()),
        (run("me", 2), [A], cluster(*A_PODS, gpus=2), ("it would start now with --nodes 1", "it starts when a ends")),
        (
            run("me", 1, TWO),
            [A, B],
            cluster(*A_PODS, *B_PODS, gpus=2, nodes=2),
            ("it would start now with --gpus 1", "it starts when a or b ends"),
        ),
        (
            run("me", 2, TWO),
            [A, B],
            cluster(*A_PODS, *B_PODS, gpus=2, nodes=2),
            ("it would start now with --gpus 1", "it starts when a and b have ended"),
        ),
        (
            run("me", 2, TWO),
            [A, ASIDE, LAST],
            cluster(*A_PODS, bound("aside-0", "n0", {}, holder="aside"), *LAST_PODS, gpus=2, nodes=2),
            ("it would start now with --gpus 1", "it starts when a and last have ended"),
        ),
        (run("me", 3), [], cluster(gpus=2), ("it would start now with --nodes 2",)),  # never all of it
        (run("me", 4, spares=2), [], cluster(gpus=3), ("it would start now with --spares 1",)),
        (run("me", 4, spares=2), [], cluster(gpus=2), ("it would start now with --spares 0",)),
        (run("me", 6, spares=2), [], cluster(gpus=3), ("it would start now with --nodes 3 --spares 0",)),
        (
            run("me", 1),
            [LONG],
            cluster(*LONG_PODS, gpus=2),
            ("it starts when long ends", "it starts within 1h59m, when timeouts of others are over"),
        ),
        (
            run("me", 1),
            [A, run("before", 2, created=NOW - 9)],
            cluster(*A_PODS, gpus=2),
            ("it would start now with a higher priority: longboat priority me 1",),
        ),
        (
            run("me", 1),
            [ELSEWHERE],
            cluster(*ELSEWHERE_PODS, gpus=1),
            ("it starts when a run of another namespace ends",),
        ),
        (
            run("me", 2, TWO),
            [ELSEWHERE, THERE],
            cluster(*ELSEWHERE_PODS, *THERE_PODS, gpus=2, nodes=2),
            ("it would start now with --gpus 1", "it starts when 2 runs of other namespaces have ended"),
        ),
    ],
)
def test_what_lets_it_in(
    me: GateCandidate, others: list[GateCandidate], room: ClusterUsage, expected: tuple[str, ...]
) -> None:
    assert openings(me, others, room, NOW) == expected
