"""An elastic job at every size: the layout is consistent, bounds hold, and the submitted job comes back."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.elastic.sizes import (
    MOST_RESIZES,
    MOST_SIZES,
    as_submitted,
    at_attempt,
    elastic_role,
    is_elastic,
    offered_sizes,
    planned_nodes,
    planned_role,
    ranks_before,
    size_words,
    sized,
    sizes,
)
from longboat.core.jobs import FRAMEWORKS, Job, Retries, Role
from longboat.core.layouts import NodeSite, lay_out, ports_needed
from longboat.core.runs import Attempt


def job(low: int = 2, high: int = 8, *, procs: int = 1, others: tuple[Role, ...] = (), **fields: object) -> Job:
    worker = Role(name="worker", run="python train.py", nodes=high, min_nodes=low, max_nodes=high, procs=procs)
    return Job(name="job", roles=(*others, worker), ends=("worker",), **fields)  # type: ignore[arg-type]


@st.composite
def elastic_jobs(draw: st.DrawFn) -> Job:
    low = draw(st.integers(1, 6))
    others = draw(st.sampled_from([(), (Role(name="ps", run="python train.py", nodes=2),)]))
    high = low + draw(st.integers(1, 6))
    framework = draw(st.sampled_from(FRAMEWORKS if not others else ("tensorflow", "none")))
    return job(low, high, procs=draw(st.integers(1, 3)), others=others, framework=framework)


@given(elastic_jobs(), st.integers(-3, 20), st.one_of(st.none(), st.integers(1, 12)))
def test_every_size_is_laid_out_consistently(submitted: Job, wanted: int, before: int | None) -> None:
    one = sized(submitted, wanted, before=before)
    role = elastic_role(one)
    assert role is not None and role.min_nodes is not None and role.max_nodes is not None
    assert role.nodes in sizes(submitted) and role.min_nodes <= role.nodes <= role.max_nodes
    assert role.nodes == min(max(wanted, role.min_nodes), role.max_nodes)
    counts = ports_needed(one)
    sites = [NodeSite(address=f"10.0.0.{n + 1}", ports=tuple(range(9000, 9000 + c))) for n, c in enumerate(counts)]
    layout = lay_out(one, run="job", uid="u", attempt=3, sites=sites)
    ranks = [rank for node in layout.nodes for rank in node.ranks]
    assert [rank.rank for rank in ranks] == list(range(one.ranks)) and layout.world_size == one.ranks
    changed = {node.env.get("LONGBOAT_WORLD_SIZE_CHANGED") for node in layout.nodes}
    is_other = before is not None and before != role.nodes
    assert changed == ({str(one.ranks + (before - role.nodes) * role.procs)} if is_other and before else {None})
    for node in layout.nodes:
        assert node.env["LONGBOAT_WORLD_SIZE"] == str(one.ranks)
        assert node.env["LONGBOAT_NODES"] == str(one.nodes) == str(len(layout.nodes))
        assert node.env["LONGBOAT_NODE_ADDRESSES"].count(",") == one.nodes - 1
    assert {rank.env.get("WORLD_SIZE", str(one.ranks)) for rank in ranks} <= {str(one.ranks)}
    if one.framework == "torch":
        assert {node.env.get("PET_NNODES", str(one.nodes)) for node in layout.nodes} == {str(one.nodes)}
    if one.framework == "tensorflow":
        clusters = [json.loads(rank.env["TF_CONFIG"])["cluster"] for rank in ranks]
        assert all(len(cluster["worker"]) == role.nodes * role.procs for cluster in clusters)


@given(elastic_jobs(), st.integers(0, 20), st.integers(0, 2000))
def test_what_was_submitted_comes_back(submitted: Job, size: int, resizes: int) -> None:
    one = sized(submitted, size, resizes=resizes, before=1)
    assert as_submitted(one) == submitted
    assert sized(one, size, resizes=resizes, before=1) == one
    assert one.retries.last_attempt == submitted.retries.count + min(resizes, MOST_RESIZES)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Job) == one


def test_a_job_of_one_size_stays_what_it_is() -> None:
    rigid = Job(name="job", roles=(Role(name="worker", run="x", nodes=3),), retries=Retries(count=2))
    assert sized(rigid, 1, resizes=4, before=2) is rigid and as_submitted(rigid) is rigid
    assert not is_elastic(rigid) and list(sizes(rigid)) == [3] and size_words(rigid) == ""
    assert at_attempt(rigid, 1, resizes=3, attempts=(), attempt=0) is rigid and ranks_before(rigid) is None


@given(st.integers(1, 9000), st.integers(1, 1000))
def test_of_a_long_range_some_sizes_are_offered(low: int, more: int) -> None:
    offered = offered_sizes(job(low, low + more))
    assert offered[0] == low and offered[-1] == low + more and len(offered) == min(more + 1, MOST_SIZES)
    assert list(offered) == sorted(set(offered))


def test_an_attempt_knows_the_one_before_it() -> None:
    attempts = [Attempt(number=0, started=1.0, size=2), Attempt(number=1, started=2.0, size=4)]
    first = at_attempt(job(), 2, resizes=0, attempts=attempts[:1], attempt=0)
    second = at_attempt(job(), 4, resizes=1, attempts=attempts, attempt=1)
    again = at_attempt(job(), 4, resizes=1, attempts=attempts, attempt=2)
    assert [ranks_before(each) for each in (first, second, again)] == [None, 2, None]
    assert size_words(second) == "4 of 2-8 nodes" and second.retries.last_attempt == 1


def test_a_plan_names_the_range_whatever_size_the_job_has() -> None:
    master = Role(name="master", run="x", nodes=1)
    elastic = job(2, 8, others=(master,))
    for each in (elastic, sized(elastic, 3)):
        assert planned_nodes(each) == "3-9 nodes, as many as there is room for,"
        assert planned_role(elastic_role(each) or master) == "2-8 x worker, 1 process each"
    rigid = Job(name="job", roles=(master,))
    assert (planned_nodes(rigid), planned_role(master)) == ("1 node", "1 x master, 1 process each")
