"""GPUs of this machine and who has them."""

from __future__ import annotations

from longboat.engines.local.metrics import activity_of
from tests.engines.local.conftest import LocalJobs

FAILS = "import sys\nsys.exit(7)\n"


def test_a_run_that_waits_for_its_next_attempt_keeps_its_gpus(local: LocalJobs) -> None:
    """Its new attempt has no nodes yet: between the two the GPU was shown as free."""
    environment = local.place.with_gpus("a", "b")
    run = local.submit(FAILS, gpus=1, environment=environment, retries={"count": 1, "backoff": "1h"})
    local.until(lambda: local.engine.status(run.name).attempt == 1, "the next attempt is due in an hour")
    assert not local.files(run.name).attempt_dir(1).exists()
    (held,) = local.files(run.name).state().gpus
    holders = {gpu.uuid: gpu.run for gpu in activity_of(local.home, local.engine.list(), environment).gpus}
    assert holders == {held: run.name, ({"a", "b"} - {held}).pop(): ""}
    local.engine.stop(run.name, grace_s=0)
    local.wait(run.name)
    assert {gpu.run for gpu in activity_of(local.home, local.engine.list(), environment).gpus} == {""}
