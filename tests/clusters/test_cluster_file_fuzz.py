"""Whatever a cluster file or a kubeconfig holds: a value, or an error of ours with its place. Never anything else."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.clusters.cluster_file import cluster_of_hosts, read_cluster
from longboat.clusters.kubeconfig_file import merge, remove
from longboat.core.errors import JobError, LongboatError
from tests.clusters.test_cluster_file import ALL
from tests.clusters.test_kubeconfig_file import ADMIN, MINE
from tests.specs.test_fuzz import PIECES

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SAFE = re.compile(r"[A-Za-z0-9._:@%-]+")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def mutated(*seeds: str) -> st.SearchStrategy[str]:
    @st.composite
    def draw_text(draw: st.DrawFn) -> str:
        text = draw(st.sampled_from(seeds))
        for _ in range(draw(st.integers(1, 6))):
            at = draw(st.integers(0, len(text)))
            until = draw(st.integers(at, min(len(text), at + 12)))
            text = text[:at] + draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[until:]
        return text

    return draw_text()


@QUICK
@given(text=mutated(ALL, "{name: a, hosts: [a, b@c:1]}", "{name: a, kind: local}", "{name: a, kind: existing}"))
def test_any_cluster_file(text: str, folder: Path) -> None:
    file = folder / "cluster.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        spec = read_cluster(file)
    except JobError as error:
        assert error.problems
        assert all(problem.message and "\n" not in str(problem) for problem in error.problems)
        return
    for host in spec.hosts:
        assert spec.kind == "local" or SAFE.fullmatch(host.address)
        assert SAFE.fullmatch(host.name) and not host.name.startswith("-")
    assert len(spec.control_planes) in ((0,) if spec.kind == "existing" else (1, 3, 5))


@QUICK
@given(
    hosts=st.lists(st.text(max_size=12) | st.from_regex(r"([a-z]@)?[a-z0-9.:\[\]-]{1,9}", fullmatch=True), max_size=4)
)
def test_any_hosts(hosts: list[str]) -> None:
    try:
        spec = cluster_of_hosts(hosts, name="lab")
    except JobError:
        return
    for host in spec.hosts:
        assert SAFE.fullmatch(host.address) and not host.address.startswith("-")
        assert host.user is None or (SAFE.fullmatch(host.user) and not host.user.startswith("-"))


def without_ours(text: str) -> Any:
    content = yaml.safe_load(text) or {}
    for plural in ("clusters", "users", "contexts"):
        kept = [each for each in content.pop(plural, None) or () if each["name"] not in ("lab", "lab-admin")]
        content |= {plural: kept} if kept else {}
    return {key: value for key, value in content.items() if key not in ("current-context", "apiVersion", "kind")}


@QUICK
@given(text=mutated(MINE, ADMIN, ""))
def test_any_kubeconfig_keeps_what_is_in_it(text: str) -> None:
    try:
        merged = merge(text, ADMIN, "lab")
    except LongboatError:
        return
    assert merge(merged, ADMIN, "lab") == merged
    left = remove(merged, "lab")
    try:
        before = without_ours(text)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return  # no kubeconfig that anybody could read
    assert without_ours(left) == before
