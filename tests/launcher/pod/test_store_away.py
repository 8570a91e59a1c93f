"""Launchers whose object store is away for a while: nothing is lost, and the training does not wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.launcher.pod.test_checkpoint_upload import SAVES, Make, gang_of, run, stored
from tests.storage.faulty import Between, between
from tests.storage.realstores import Running

pytestmark = [pytest.mark.stores, pytest.mark.slow]


@pytest.fixture
def url() -> str:
    return f"s3://data/ckpt/{uuid4().hex}"


@pytest.fixture
def faulty(s3: Running) -> Iterator[Between]:
    with between(s3.url) as state:
        yield state


def test_a_store_that_is_away_at_the_end_of_a_pod_loses_nothing(
    s3: Running, faulty: Between, url: str, make_pods: Make, tmp_path: Path
) -> None:
    """The training does not wait for it; the pod does, for its checkpoints would go with it."""
    waits = f"print('up', flush=True)\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)\n"
    pods = make_pods(script=SAVES + waits + "save(1); save(2)\nprint('over', flush=True)")
    pods.start(0, gang=gang_of(pods, url, 0), env={**s3.environment, "AWS_ENDPOINT_URL": faulty.url})
    pods.until_said("up")
    faulty.answers = [(503, "SlowDown")] * 12  # more than two tries, which is all that one which refuses is given
    (tmp_path / "go").touch()
    pods.until_said("over")
    assert stored(url, s3) == []
    assert pods.wait(0) == 0
    assert not faulty.answers and stored(url, s3) == ["step-2"]
    assert pods.message()["checkpoint"] == f"{url}/step-2" and "was not sent" in pods.stderr()


@pytest.mark.soak
def test_a_retry_waits_for_a_store_that_is_away_and_a_first_attempt_does_not(
    s3: Running, faulty: Between, url: str, make_pods: Make
) -> None:
    through = {**s3.environment, "AWS_ENDPOINT_URL": faulty.url}
    assert run(make_pods(script=SAVES + "save(1)"), url, s3.environment) == [0]
    faulty.answers = [(503, "SlowDown")] * 6  # one try is five requests
    pods = make_pods(script="import longboat; print('from', longboat.resume_from())", plan={"attempt": 1})
    pods.start(0, gang=gang_of(pods, url, 0), env=through)
    assert pods.wait(0) == 0 and "step-1" in pods.log(0, "0.out"), pods.stderr()
    faulty.answers = [(503, "SlowDown")] * 6
    first = make_pods(script="print('up')")
    first.start(0, gang=gang_of(first, url, 0), env=through)
    assert first.wait(0) == 209 and "checkpoints cannot be fetched" in str(first.message())
