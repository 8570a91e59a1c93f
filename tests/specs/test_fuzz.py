"""Whatever the bytes, the fields or the overrides are: a Job, or a JobError. Never anything else, never a hang."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.core.errors import JobError
from longboat.core.jobs import Job
from longboat.specs.dump import job_to_mapping, to_yaml
from longboat.specs.importers.registry import import_text
from longboat.specs.read import read_job
from tests.specs.test_read import DCNN, DIGITS

SEEDS = [
    DIGITS,
    DCNN,
    "a: &a [1, *a]\nb: {<<: *a}\n",
    "run: [x]\nsecrets: {A: {env: B}}\nvolumes: {/a: b}\nretries: {on: [1]}\nends: w\nlabels: {a: 1}\n",
    'run: "${A:-b}"\nenv: {A: ${B}, C: "\\u0041"}\nroles: {ps: , worker: {gpus: H100:8, memory: 1Gi}}\n',
]
PIECES = ["\t", "\n", "  ", ": ", "- ", "[", "]", "{", "}", "&a ", "*a", "<<: ", "!x ", '"', "'", "|\n", ">", "#", "%",
          "---\n", "...", "${", "}", "$${", "\x00", "\ufeff", "\ud7ff", "08", "1e-3", ".nan", "9" * 50, "null", "? ",
          "name", "run: ", "roles: ", "gpus: ", "env: ", "secrets: ", "data: ", "on", "-1"]  # fmt: skip
QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(text)))
        until = draw(st.integers(at, min(len(text), at + 12)))
        text = text[:at] + draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[until:]
    return text.encode("utf-8", "surrogatepass")


def load(folder: Path, data: bytes, **more: Any) -> Job | None:
    file = folder / "job.yaml"
    file.write_bytes(data)
    try:
        return read_job([file], environment={"A": "1"}, **more).job
    except JobError as error:
        assert error.problems
        assert all(problem.message and "\n" not in str(problem) for problem in error.problems)
        return None


@QUICK
@given(data=st.binary(max_size=300))
def test_bytes(folder: Path, data: bytes) -> None:
    load(folder, data)


@QUICK
@given(data=mutated())
def test_mutated_files(folder: Path, data: bytes) -> None:
    job = load(folder, data)
    if job is not None:  # what loads once, loads again from its own form
        assert load(folder, to_yaml(job_to_mapping(job)).encode()) is not None


@QUICK
@given(overrides=st.lists(st.text(max_size=20) | st.sampled_from([*PIECES, "a.b=c", "data.0=1", "env.A=[", "\udcff="])))
def test_overrides(folder: Path, overrides: Sequence[str]) -> None:
    load(folder, DIGITS.encode(), overrides=overrides)


NAMES = ["run", "nodes", "env", "gpus", "roles", "worker", "secrets", "volumes", "/a", "data", "retries", "ends", "x"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800")
VALUES = st.recursive(
    SCALARS | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)


@QUICK
@given(fields=st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_fields(fields: dict[str, object]) -> None:
    try:
        read_job([], fields=fields, environment={})
    except JobError as error:
        assert error.problems


@QUICK
@given(data=mutated(), kind=st.sampled_from(["", "type: task\n", "num_nodes: 2\n"]))
def test_importers(folder: Path, data: bytes, kind: str) -> None:
    text = kind + data.decode("utf-8", "replace")
    try:
        imported = import_text(text, file="x.yaml")
    except JobError:
        return
    file = folder / "imported.yaml"
    file.write_text(imported.text, encoding="utf-8")
    read_job([file], environment={})
