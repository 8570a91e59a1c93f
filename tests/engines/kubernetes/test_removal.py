"""What a removed run leaves in the storage that its pods mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longboat.core.jobs import Job, Role
from longboat.core.runs import RunStatus
from longboat.engines.engine import Engine, Submission
from longboat.storage.inventory.actions import remove
from tests.conformance.clusters import ClusterPlace
from tests.conformance.places import open_flavour

CHECKPOINTS = 'cd "$LONGBOAT_CHECKPOINT_DIR" && mkdir step-1 step-2 && touch step-1/.complete step-2/.complete'


def remove_newest(engine: Engine, status: RunStatus) -> None:
    """What is written down as the newest, for `--resume` and `serve`, is one that is there."""
    assert status.checkpoint is not None and status.checkpoint.endswith("/step-2")
    with engine.checkpoints(status.name) as place:
        remove(place, status.name, ["2"], is_final=True, force=False)
    assert engine.status(status.name).checkpoint == status.checkpoint.replace("step-2", "step-1")


@pytest.mark.pods
def test_checkpoints_stay_and_without_any_no_folder_does(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with open_flavour("kubernetes", request, tmp_path) as place:
        assert isinstance(place, ClusterPlace)
        for name, command in (("none", "true"), ("some", CHECKPOINTS)):
            job = Job(name=name, roles=(Role(name="worker", run=command),), ends=("worker",), workdir=None)
            place.engine.submit(Submission(job=job, base=str(tmp_path), environment=os.environ, run_id=name))
            status = place.engine.wait(name, timeout_s=180.0)
            assert status.phase == "succeeded"
            if name == "some":
                remove_newest(place.engine, status)
            place.engine.delete(name)
        (left,) = (place.storage / "longboat").iterdir()
        assert left.name.startswith("some-")
        assert [path.relative_to(left).as_posix() for path in left.glob("*/*")] == ["checkpoints/step-1"]
