from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.core.errors import UsageError
from longboat.core.jobs import Role
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.records import WorkloadKind
from tests.engines.kubernetes.manifest_samples import job, role

LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
RUNS = st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)
ROLES = st.from_regex(r"[a-z][a-z0-9]{0,19}", fullmatch=True)
KINDS: st.SearchStrategy[WorkloadKind] = st.sampled_from(["job", "jobset"])


def test_names_of_an_ordinary_run() -> None:
    what = job(role("chief"), role("worker", nodes=2))
    assert names.role_names(what, "train", 0, "job") == {"chief": "chief", "worker": "worker"}
    assert names.addresses(what, "train", 3, "job") == [
        "train-a3-chief-0.train-a3",
        "train-a3-worker-0.train-a3",
        "train-a3-worker-1.train-a3",
    ]
    assert names.addresses(what, "train", 0, "jobset") == [
        "train-a0-chief-0-0.train-a0",
        "train-a0-worker-0-0.train-a0",
        "train-a0-worker-0-1.train-a0",
    ]


@given(
    run=RUNS,
    roles=st.lists(st.tuples(ROLES, st.integers(1, 10_000)), min_size=1, max_size=6, unique_by=lambda r: r[0]),
    attempt=st.integers(0, 10_000),
    kind=KINDS,
)
@settings(max_examples=200, deadline=None)
def test_all_names_are_labels_that_nobody_else_has(
    run: str, roles: list[tuple[str, int]], attempt: int, kind: WorkloadKind
) -> None:
    what = job(*(Role(name=name, run="x", nodes=nodes) for name, nodes in roles))
    short = names.role_names(what, run, attempt, kind)
    assert names.role_names(what, run, attempt, kind) == short
    assert len(set(short.values())) == len(roles)
    assert names.check_run_id(run) is None
    hosts = [
        f"{names.job_name(run, attempt, short[name])}{'-0-abcde' if kind == 'jobset' else ''}-{nodes - 1}"
        for name, nodes in roles
    ]
    for name in [names.attempt_name(run, attempt), names.env_secret(run), *hosts]:
        assert LABEL.fullmatch(name), name


@given(run=RUNS, name=ROLES, nodes=st.integers(1, 3), kind=KINDS)
@settings(max_examples=100, deadline=None)
def test_addresses_are_host_and_subdomain_of_different_pods(
    run: str, name: str, nodes: int, kind: WorkloadKind
) -> None:
    what = job(Role(name=name, run="x", nodes=nodes), Role(name="zz9", run="x"))
    found = names.addresses(what, run, 0, kind)
    assert len(set(found)) == nodes + 1
    for address in found:
        host, subdomain = address.split(".")
        assert LABEL.fullmatch(host)
        assert subdomain == names.attempt_name(run, 0)


def test_roles_that_would_be_shortened_alike_differ() -> None:
    first, second = "averyveryverylong1", "averyveryverylong2"
    what = job(role(first), role(second))
    found = names.role_names(what, "r" * 40, 0, "jobset")
    assert found[first] != found[second]
    assert all(len(name) < len(first) and name.startswith("aver") for name in found.values())


@pytest.mark.parametrize("text", ["", "A", "1a", "a-", "a_b", "a" * 41, "a/b", "a\n"])
def test_what_is_no_run_name(text: str) -> None:
    with pytest.raises(UsageError):
        names.check_run_id(text)


@given(st.text(max_size=100))
def test_any_text_as_a_label_value(text: str) -> None:
    assert re.fullmatch(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?", names.label_value(text))


def test_selectors() -> None:
    assert names.pods_of("train") == "app.kubernetes.io/managed-by=longboat,longboat.dev/run=train,longboat.dev/role"
    assert names.pods_of("train", 2).endswith(",longboat.dev/attempt=2,longboat.dev/role")
