"""The harness of bench/reliability.py: its model, that it sees what is wrong, and a storm (1,000 kills in the soak)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from longboat.core.runs import Attempt, LogLine, RunStatus  # noqa: E402
from storm_checks import Aftermath, steps_that_fell  # noqa: E402
from storm_local import KINDS  # noqa: E402
from storm_plan import Blow, Episode, allowed_codes, draw, expected  # noqa: E402
from storm_trainer import Witness  # noqa: E402

KILLS = 1000 if os.environ.get("LONGBOAT_TEST_SOAK") else 12
SEEDS = range(300)


def episode(*blows: Blow, retries: int = 1) -> Episode:
    return Episode(1, 1, 2, 0, retries, "new", 6, 2, blows, (), (), False, False)


@pytest.mark.parametrize("parts", [(), ("apiserver", "kubelet")])
def test_a_seed_is_an_episode_and_the_model_knows_its_end(parts: tuple[str, ...]) -> None:
    ends = set()
    for seed in SEEDS:
        drawn = draw(seed, KINDS, parts)
        assert drawn == draw(seed, KINDS, parts)
        end = expected(drawn)
        ends.add(end.phase)
        assert len(end.attempts) <= drawn.retries + 1
        assert end.phase != "succeeded" or end.attempts[-1].last == drawn.steps
        for attempt in end.attempts:
            assert attempt.resumed % drawn.every == 0 and attempt.resumed <= attempt.last
    assert ends == {"succeeded", "failed", "stopped"}


def test_the_model() -> None:
    end = expected(episode(Blow("rank", 0, 4, 1), Blow("exit", 1, 6, 0, 42)))
    assert (end.phase, end.exit_code) == ("failed", 42)
    assert end.attempts == ((0, 3, 137, 1), (2, 5, 42, 0))
    assert expected(episode(Blow("launcher", 0, 1))).attempts == ((0, 0, 208, None), (0, 6, 0, None))
    assert allowed_codes(episode(), ["rank"], False) == {0}
    assert allowed_codes(episode(), ["rank", "supervisor"], False) == {0, 137, 208}
    assert allowed_codes(episode(retries=0), ["rank"], False) == {137}
    assert steps_that_fell([(0, 1), (0, 3), (1, 2), (0, None)]) == []
    assert steps_that_fell([(0, 3), (0, 2)]) == ["the step of attempt 0 fell from 3 to 2"]


def aftermath(folder: Path, **status: object) -> Aftermath:
    """Of a training of two ranks and six steps that went well, and of what is said of it."""
    witness = Witness(folder)
    for rank in range(2):
        notes = ["start 1 0", *(f"line {step}" for step in range(1, 7)), "end"]
        (folder / f"rank-0-{rank}").write_text("".join(f"{note}\n" for note in notes))
    fields = {"phase": "succeeded", "exit_code": 0, "attempts": (Attempt(number=0, started=1.0),), **status}
    said = RunStatus(name="t", uid="u", job="t", engine="local", created=1.0, nodes=1, gpus=0, **fields)  # type: ignore[arg-type]
    return Aftermath(episode(), witness, said, [])


def log(rank: int, *steps: int) -> list[LogLine]:
    lines = [(rank, f"line {step}\n".encode()) for step in steps]
    return [
        LogLine(role="worker", node="worker-0", rank=number, stream="out", attempt=0, time=1.0, data=data)
        for number, data in lines
    ]


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    whole = [*log(0, *range(1, 7)), *log(1, *range(1, 7))]
    none = tmp_path / "none"
    assert aftermath(tmp_path / "a").complaints(whole, none) == []
    for number, (lines, fields, complaint) in enumerate(
        [
            (whole[1:], {}, "its log has"),
            ([*whole, whole[-1]], {}, "its log has"),
            (whole, {"phase": "failed", "exit_code": 1}, "failed 1 in place of succeeded 0"),
            (whole, {"attempts": ()}, "are not in the record"),
        ]
    ):
        complaints = aftermath(tmp_path / str(number), **fields).complaints(lines, none)
        assert complaint in " ".join(complaints), complaint
    twice = aftermath(tmp_path / "twice")
    with open(tmp_path / "twice" / "rank-0-1", "a") as file:
        file.write("start 2 0\noverlap\n")
    assert {"rank 1 of attempt 0 started twice", "rank 1 of attempt 0: overlap"} <= set(twice.complaints(whole, none))
    checkpoint = tmp_path / "checkpoints" / "step-2"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    assert "step-2 cannot be read" in " ".join(aftermath(tmp_path / "c").complaints(whole, checkpoint.parent))


@pytest.mark.slow
def test_a_storm_over_random_trainings() -> None:
    command = [sys.executable, str(BENCH / "reliability.py"), "--kills", str(KILLS), "--parallel", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    hits = re.search(r"(\d+) kills of \d+ trainings .* 0 not as the model says; seed \d+", done.stdout)
    assert hits is not None and int(hits[1]) >= KILLS
