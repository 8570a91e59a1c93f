"""`longboat checkpoint` as a user types it, on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from longboat.cli.commands.checkpoints import checkpoint
from longboat.core.errors import NotFound, UsageError
from tests.cli.conftest import Longboat
from tests.engines.local.test_removed_checkpoints import Ended

TRAIN = """
import longboat

for step in range(1, 7):
    longboat.step(step, accuracy={1: 0.1, 2: 0.9}.get(step, 0.5))
    with longboat.checkpoint(step) as folder:
        with open(folder + "/model", "w") as file:
            file.write("weights %d" % step)
"""
JOB = """
name: digits
run: python train.py
checkpoints: {keep: {last: 2, best: 1, metric: accuracy}}
"""


def test_checkpoints_in_hand(longboat: Longboat) -> None:
    (longboat.folder / "train.py").write_text(TRAIN)
    (longboat.folder / "job.yaml").write_text(JOB)
    longboat("run", "-q", "job.yaml")
    entries = json.loads(longboat("checkpoint", "ls", "digits", "-o", "json").out)
    assert [(entry["step"], entry["complete"], entry["attempt"]) for entry in entries] == [
        (step, True, 1) for step in (2, 5, 6)
    ]
    assert entries[0]["metrics"] == {"accuracy": 0.9} and entries[0]["size"] == len("weights 2")
    assert Path(entries[0]["where"], "model").read_text() == "weights 2"

    assert longboat("checkpoint", "promote", "digits:5").out == "digits:5\n"
    assert longboat("checkpoint", "get", "digits:promoted", "best").out == "best\n"
    assert (longboat.folder / "best" / "model").read_text() == "weights 5"
    assert "complete, promoted" in longboat("checkpoint", "ls", "digits").out
    refused = longboat("checkpoint", "rm", "digits:5", code=203)
    assert refused.err.startswith("error: step-5 of digits is promoted\nhint: ")
    assert longboat("checkpoint", "rm", "digits:2").out == "digits:2\n"
    longboat("checkpoint", "rm", "digits", code=201)

    assert longboat("checkpoint", "verify", "digits").out.count("fine") == 2
    Path(entries[2]["where"], "model").write_text("weights 7")
    damaged = longboat("checkpoint", "verify", "digits:6", "-o", "json", code=205)
    (check,) = json.loads(damaged.out)
    assert check["problems"] == ["model has other content than was written"]
    assert "step 6: model has other content" in damaged.err

    longboat("run", "-q", "--id", "again", "--resume", "digits:promoted", "train.py")
    (attempt,) = json.loads(longboat("status", "again", "-o", "json").out)["attempts"]
    assert attempt["resumed_from"].endswith("/digits/step-5")
    longboat("rm", "digits")
    assert [entry["step"] for entry in json.loads(longboat("checkpoint", "ls", "digits", "-o", "json").out)] == [5, 6]


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Runs that have ended, in an engine that the commands open."""
    runs = Ended(tmp_path)
    monkeypatch.setattr(checkpoint, "open_engine", lambda: runs.engine)
    return runs


def test_a_removed_run_is_never_taken_for_one_that_begins_like_it(ended: Ended) -> None:
    kept, other = (Path(ended.add(name).checkpoint_dir, "step-1") for name in ("train", "train-2"))
    ended.engine.delete("train")
    assert CliRunner().invoke(checkpoint.command, ["ls", "train", "-o", "json"]).output.count(str(kept)) == 1
    removed = CliRunner().invoke(checkpoint.command, ["rm", "train:1"])
    assert (removed.exit_code, removed.output) == (0, "train:1\n")
    assert other.is_dir() and not kept.exists()


@pytest.mark.parametrize(
    ("words", "error"), [("rm trai:1", NotFound), ("promote trai:1", NotFound), ("rm :1", UsageError)]
)
def test_what_changes_a_checkpoint_asks_for_the_whole_name(ended: Ended, words: str, error: type[Exception]) -> None:
    place = Path(ended.add("train").checkpoint_dir)
    assert isinstance(CliRunner().invoke(checkpoint.command, words.split()).exception, error)
    assert [path.name for path in place.iterdir()] == ["step-1"]
    assert CliRunner().invoke(checkpoint.command, ["ls", "trai"]).exit_code == 0
