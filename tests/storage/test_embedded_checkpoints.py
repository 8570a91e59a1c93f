"""The embedded engine keeps checkpoints in a real store, and resumes from there when this machine has lost them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError, JobError
from longboat.core.runs import LogQuery
from longboat.storage.checkpoint_mirror import Mirror
from tests.conformance.conftest import Jobs
from tests.conformance.places import open_local
from tests.storage.faulty import between
from tests.storage.realstores import ALONE, KEYS, READER, Running

TRAINS = """
import os, longboat
folder = longboat.resume_from()
start = int(open(os.path.join(folder, "step")).read()) if folder else 0
print("from", start, flush=True)
for step in range(start + 1, start + 3):
    with longboat.checkpoint(step) as folder:
        open(os.path.join(folder, "step"), "w").write(str(step))
"""
FAILS_ONCE = TRAINS + "raise SystemExit(3 if os.environ['LONGBOAT_ATTEMPT'] == '0' else 0)\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with open_local(tmp_path) as place:
        yield Jobs(place, tmp_path)


@pytest.fixture
def job_fields(s3: Running, jobs: Jobs) -> dict[str, Any]:
    """Fields of a job, and a submitter who has the keys of the store."""
    return {
        "environment": {**jobs.place.environment, **ALONE, **KEYS},
        "env": {"AWS_ENDPOINT_URL": s3.url},
        "secrets": list(KEYS),
        "checkpoints": {"to": f"s3://data/embedded/{uuid.uuid4().hex}", "keep": 2},
    }


def stored(status: Any, s3: Running) -> list[str]:
    return [name for _, name in Mirror(status.checkpoint_dir, s3.environment).complete()]


def test_a_retry_goes_on_where_the_store_is_when_the_folder_is_lost(
    s3: Running, jobs: Jobs, job_fields: dict[str, Any], tmp_path: Path
) -> None:
    status = jobs.submit(FAILS_ONCE, retries={"count": 1, "backoff": "8s"}, **job_fields)
    url = f"{job_fields['checkpoints']['to']}/{status.name}-{jobs.engine.status(status.name).uid[:8]}"
    assert jobs.engine.status(status.name).checkpoint_dir == url
    jobs.until(lambda: jobs.engine.status(status.name).attempt == 1, "it waits for its second attempt")
    assert jobs.engine.status(status.name).checkpoint == f"{url}/step-2"
    shutil.rmtree(tmp_path / "home" / "checkpoints" / status.name)
    done = jobs.wait(status.name)
    assert done.phase == "succeeded", done.reason
    assert jobs.text(done.name) == "from 0\nfrom 2\n"
    assert stored(done, s3)[-1] == "step-4" and len(stored(done, s3)) == 2 and done.checkpoint == f"{url}/step-4"


def test_another_run_resumes_from_the_bucket_and_purge_empties_it(
    s3: Running, jobs: Jobs, job_fields: dict[str, Any], tmp_path: Path
) -> None:
    first = jobs.run(TRAINS, **job_fields)
    assert first.phase == "succeeded", first.reason
    assert stored(first, s3)[-1] == "step-2"
    shutil.rmtree(tmp_path / "home" / "checkpoints" / first.name)
    fields = {name: value for name, value in job_fields.items() if name != "checkpoints"}
    for resume in (first.name, first.checkpoint_dir, f"{first.checkpoint_dir}/step-2"):
        second = jobs.run(TRAINS, checkpoints={"resume": resume}, **fields)
        assert second.phase == "succeeded" and jobs.text(second.name) == "from 2\n", second.reason
    nothing = jobs.run(TRAINS, checkpoints={"resume": f"{first.checkpoint_dir}/step-9"}, **fields)
    assert nothing.phase == "failed" and "no complete checkpoint to resume from in s3://" in nothing.reason

    jobs.engine.delete(second.name, purge=True)
    assert stored(first, s3)[-1] == "step-2"
    with pytest.raises(EngineError, match="cannot be removed: .*no credentials were found"):
        jobs.engine.delete(first.name, purge=True)
    assert jobs.engine.status(first.name).phase == "succeeded"  # it stays, so that one can try again
    jobs.engine.environment.update({**ALONE, **KEYS})  # type: ignore[attr-defined]
    jobs.engine.delete(first.name, purge=True)
    assert stored(first, s3) == []


def test_without_purge_they_stay(s3: Running, jobs: Jobs, job_fields: dict[str, Any]) -> None:
    done = jobs.run(TRAINS, nodes=2, **job_fields)
    assert done.phase == "succeeded", done.reason
    before = stored(done, s3)
    assert before[-1] == "step-2"
    jobs.engine.delete(done.name)
    assert stored(done, s3) == before


def test_a_store_that_cannot_be_used(s3: Running, jobs: Jobs, job_fields: dict[str, Any]) -> None:
    environment = {**job_fields["environment"], **READER}
    failed = jobs.run(TRAINS, **{**job_fields, "checkpoints": "s3://nothere/x"})
    assert (failed.phase, failed.cause) == ("failed", "setup")
    assert "checkpoints cannot be fetched: s3://nothere/x/" in failed.reason and "no bucket" in failed.reason
    # Who may only read learns of it on the log, and the training is not lost.
    done = jobs.run(TRAINS, **{**job_fields, "environment": environment})
    assert done.phase == "succeeded" and done.checkpoint is None and stored(done, s3) == []
    said = [line.data.decode() for line in jobs.engine.logs(done.name, LogQuery()) if line.stream == "setup"]
    assert [text for text in said if "the newest checkpoint was not sent: s3://data/embedded/" in text]


def test_a_stop_has_the_grace_to_send(s3: Running, jobs: Jobs, job_fields: dict[str, Any]) -> None:
    code = TRAINS + "import time\nlongboat.should_stop()\nprint('up', flush=True)\n"
    code += "while not longboat.should_stop(): time.sleep(0.02)\n"
    code += "with longboat.checkpoint(50): pass\n"
    run = jobs.submit(code, **job_fields).name
    jobs.until_said(run, "up")
    jobs.engine.stop(run)
    done = jobs.wait(run)
    assert done.phase == "stopped" and done.checkpoint == f"{done.checkpoint_dir}/step-50"
    assert stored(done, s3)[-1] == "step-50"


WAITS = """
import time
while not os.path.exists(os.environ["GO"]): time.sleep(0.02)
with longboat.checkpoint(70): pass
"""


@pytest.mark.parametrize(("code", "phase"), [(3, "failed"), (0, "succeeded")])
def test_the_last_one_is_waited_for_longer_than_the_grace(
    s3: Running, jobs: Jobs, job_fields: dict[str, Any], tmp_path: Path, code: int, phase: str
) -> None:
    with between(s3.url) as faulty:
        env = {"AWS_ENDPOINT_URL": faulty.url, "GO": str(tmp_path / "go")}
        script = f"import os, longboat\nprint('up', flush=True)\n{WAITS}\nraise SystemExit({code})"
        run = jobs.submit(script, **{**job_fields, "env": env, "grace": "0s"}).name
        jobs.until_said(run, "up")
        jobs.until(lambda: len(faulty.requests) >= 2, "engine and launcher have looked into the store")
        faulty.answers = [(503, "SlowDown")] * 4  # seven seconds of patience
        (tmp_path / "go").touch()
        done = jobs.wait(run)
    assert (done.phase, done.exit_code) == (phase, code), done.reason
    assert stored(done, s3) == ["step-70"] and done.checkpoint == f"{done.checkpoint_dir}/step-70"


OTHER_FAILS = """
import os, time, longboat
go = os.environ["GO"]
print("up", flush=True)
while not os.path.exists(go): time.sleep(0.02)
if longboat.rank() == 0:
    with longboat.checkpoint(70): pass
    open(go + ".saved", "w").close()
    time.sleep(600)
while not os.path.exists(go + ".saved"): time.sleep(0.02)
raise SystemExit(4)
"""


def test_it_is_waited_for_when_another_node_fails(
    s3: Running, jobs: Jobs, job_fields: dict[str, Any], tmp_path: Path
) -> None:
    with between(s3.url) as faulty:
        env = {"AWS_ENDPOINT_URL": faulty.url, "GO": str(tmp_path / "go")}
        run = jobs.submit(OTHER_FAILS, **{**job_fields, "env": env, "grace": "0s", "nodes": 2}).name
        jobs.until_said(run, "up", times=2)
        jobs.until(lambda: len(faulty.requests) >= 2, "engine and launcher have looked into the store")
        faulty.answers = [(503, "SlowDown")] * 4
        (tmp_path / "go").touch()
        done = jobs.wait(run)
    assert (done.phase, done.exit_code) == ("failed", 4), done.reason
    assert stored(done, s3) == ["step-70"]


def test_a_stop_while_the_last_one_is_sent_changes_nothing_else(
    s3: Running, jobs: Jobs, job_fields: dict[str, Any], tmp_path: Path
) -> None:
    with between(s3.url) as faulty:
        env = {"AWS_ENDPOINT_URL": faulty.url, "GO": str(tmp_path / "go")}
        script = f"import os, longboat\nprint('up', flush=True)\n{WAITS}"
        run = jobs.submit(script, **{**job_fields, "env": env}).name
        jobs.until_said(run, "up")
        jobs.until(lambda: len(faulty.requests) >= 2, "engine and launcher have looked into the store")
        faulty.answers = [(503, "SlowDown")] * 10_000
        (tmp_path / "go").touch()
        outcome = tmp_path / "home" / "runs" / run / "attempts" / "0" / "worker-0" / "outcome.json"
        jobs.until(outcome.exists, "its ranks have ended")
        jobs.engine.stop(run, grace_s=0)
        done = jobs.wait(run)
    assert (done.phase, done.exit_code) == ("succeeded", 0) and stored(done, s3) == []


def test_a_plan_says_where_they_go(jobs: Jobs, job_fields: dict[str, Any]) -> None:
    plan = jobs.engine.plan(jobs.submission(TRAINS, **job_fields))
    (action,) = [each for each in plan.actions if each.kind == "keep"]
    assert action.what.startswith(f"checkpoints in {job_fields['checkpoints']['to']}/job-") and "2" in action.reason
    with pytest.raises(JobError, match="checkpoints"):
        jobs.submission(TRAINS, checkpoints="http://example.org/x")
