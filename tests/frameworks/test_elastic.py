"""Elastic runs of real frameworks: at each size they come together, and the shares of ranks make exactly the batch."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.conftest import RunJob, longboat

pytestmark = [pytest.mark.frameworks]


@pytest.mark.parametrize(
    ("framework", "job", "procs"),
    [
        ("torch", {"run": "torchrun elastic_torch.py", "procs": 2}, 2),
        ("jax", {"run": "python elastic_jax.py"}, 1),
    ],
)
def test_it_grows(framework: str, job: dict[str, Any], procs: int, run_job: RunJob, tmp_path: Path) -> None:
    """One CPU is left beside another run; when that has ended there is room for a second node."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        pytest.skip("one CPU is no room to grow")
    gate = tmp_path / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    longboat("run", "--name", "holder", "--cpus", str(cpus - 1), "--detach", "--", "sh", "-c", waits, cwd=tmp_path)
    settings = {"name": "trial", "nodes": "1-2", "cpus": 1, "batch": "global", "grace": "2s"}
    try:
        ended = run_job(
            framework, f"elastic_{framework}.py", {**settings, **job, "env": {"LARGE": "2", "BEGUN": str(gate)}}
        )
    finally:
        longboat("rm", "holder", "--force", "--yes", cwd=tmp_path)
    assert ended.exit_code == 0, ended.log + ended.messages
    said = re.findall(r"rank (\d+) of (\d+), before (\S+), from (\d+), together (\d+)", ended.log)
    small, large = procs, 2 * procs
    first = {(int(rank), int(size), before, int(start)) for rank, size, before, start, _ in said if size == str(small)}
    assert first == {(rank, small, "-", 0) for rank in range(small)}
    second = [(int(rank), before, int(start)) for rank, size, before, start, _ in said if size == str(large)]
    assert sorted(rank for rank, _, _ in second) == list(range(large))
    assert {before for _, before, _ in second} == {str(small)}
    (start,) = {start for _, _, start in second}
    assert start >= 5 and start % 5 == 0, "all from the same checkpoint"
    assert {together for *_, together in said} == {"7"}
    assert [each["size"] for each in ended.status["attempts"]] == [1, 2] and ended.status["retries"] == 0
