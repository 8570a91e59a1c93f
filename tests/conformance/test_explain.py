"""The post-mortem: first failing rank, node, cause, the lines that show it, the next step."""

from __future__ import annotations

import pytest

from longboat.core.runs import Explanation
from tests.conformance.conftest import Jobs


def explained(jobs: Jobs, code: str, **fields: object) -> Explanation:
    run = jobs.run(code, **fields)
    explanation = jobs.engine.explain(run.name)
    assert explanation.run == run.name and explanation.phase == run.phase
    assert explanation.headline
    return explanation


def test_an_exception(jobs: Jobs) -> None:
    code = """
import os, time
def load(batch):
    raise ValueError("bad batch 17")
if os.environ["RANK"] == "1": load(17)
time.sleep(60)
"""
    why = explained(jobs, code, nodes=2)
    assert why.cause == "exception"
    assert "rank 1 on node worker-1" in why.headline and "ValueError: bad batch 17" in why.headline
    assert any("in load" in line for line in why.lines) and "ValueError: bad batch 17" in why.lines[-1]
    assert any("exit code 1" in fact for fact in why.facts)
    assert any("--rank 1" in step for step in why.next_steps)


def test_a_signal(jobs: Jobs) -> None:
    why = explained(jobs, "import os; print('bye', flush=True); os.kill(os.getpid(), 11)")
    assert why.cause == "signal" and "SIGSEGV" in why.headline
    assert any("bye" in line for line in why.lines) or "Segmentation fault" in "".join(why.lines)


def test_an_exit_code(jobs: Jobs) -> None:
    why = explained(jobs, "import sys; print('cannot open data', file=sys.stderr); sys.exit(4)")
    assert why.cause == "exit" and "4" in why.headline
    assert any("cannot open data" in line for line in why.lines)


def test_memory(jobs: Jobs) -> None:
    code = """
import time
hoard = bytearray(300 << 20)
for i in range(0, len(hoard), 4096): hoard[i] = 1
time.sleep(60)
"""
    why = explained(jobs, code, memory="100Mi")
    assert why.cause == "oom" and "100Mi" in why.headline and "limit" in why.headline
    assert any("memory" in step for step in why.next_steps)


@pytest.mark.parametrize("shape", [{"procs": 3}, {"nodes": 3}])
def test_a_hang_names_the_odd_one_and_shows_its_stack(jobs: Jobs, shape: dict[str, int]) -> None:
    code = """
import os, time
def waits_in_all_reduce():
    time.sleep(1000)
def reads_a_slow_disk():
    time.sleep(1000)
print("begins", flush=True)
if os.environ["RANK"] == "2": reads_a_slow_disk()
waits_in_all_reduce()
"""
    why = explained(jobs, code, stall="1s", grace="1s", **shape)
    assert why.cause == "hang"
    assert "rank 2" in why.headline and "reads_a_slow_disk" in why.headline
    assert any("reads_a_slow_disk" in line for line in why.lines)


def test_a_timeout(jobs: Jobs) -> None:
    why = explained(jobs, "import time; print('epoch 1', flush=True); time.sleep(60)", timeout="1s")
    assert why.cause == "timeout" and "longer than its timeout of 1 s" in why.headline
    assert "epoch 1" in why.lines
    assert any("timeout" in step for step in why.next_steps)


def test_setup(jobs: Jobs) -> None:
    why = explained(jobs, "print(1)", setup="echo no such package: quux; exit 3")
    assert why.cause == "setup"
    assert any("no such package: quux" in line for line in why.lines)


def test_a_command_that_is_not_there(jobs: Jobs) -> None:
    why = explained(jobs, "", run=["no-such-program"])
    assert "no-such-program" in why.headline
    assert any("not found" in step for step in why.next_steps)


def test_runs_that_did_not_fail(jobs: Jobs) -> None:
    assert "succeeded" in explained(jobs, "print(1)").headline
    run = jobs.submit("import time; print('ready', flush=True); time.sleep(60)")
    jobs.until_said(run.name, "ready")
    jobs.until_phase(run.name, "running")
    assert jobs.engine.explain(run.name).headline == "it is running"
    jobs.engine.stop(run.name)
    jobs.wait(run.name)
    assert "stopped" in jobs.engine.explain(run.name).headline


def test_every_attempt_is_told(jobs: Jobs) -> None:
    why = explained(jobs, "import sys; sys.exit(3)", retries={"count": 1, "backoff": "0s"})
    assert any(fact.startswith("attempt 1") for fact in why.facts)
    assert any(fact.startswith("attempt 2") for fact in why.facts)
