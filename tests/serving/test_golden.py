"""Golden cases: what counts as the same answer, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.serving.golden import DamagedCases, difference, parse_cases, read_cases


@pytest.mark.parametrize(
    ("expected", "answer", "tolerance"),
    [
        (1.0, 1.00005, 1e-4),
        (1000.0, 1000.05, 1e-4),  # relative above 1
        ({"y": [1, 2]}, {"y": [1.0, 2.0], "took_ms": 7}, 0.0),
        ("a", "a", 0.0),
        (None, None, 0.0),
        (True, True, 0.0),
    ],
)
def test_the_same_answer(expected: object, answer: object, tolerance: float) -> None:
    assert difference(expected, answer, tolerance) is None


@pytest.mark.parametrize(
    ("expected", "answer", "words"),
    [
        (1.0, 1.5, "answer is 1.5, expected 1.0: differs by 0.5, tolerance 0.0001"),
        ({"y": [1, 2]}, {"y": [1, 3]}, "answer.y[1] is 3, expected 2: differs by 1, tolerance 0.0001"),
        ({"y": 1}, {"z": 1}, 'answer has no "y"'),
        ([1, 2], [1], "answer has 1 items, expected 2"),
        ([1], {"y": 1}, 'answer is {"y": 1}, expected [1]'),
        (True, 1, "answer is 1, expected true"),
        (1.0, float("nan"), "answer is NaN, expected 1.0: differs by nan, tolerance 0.0001"),
        ("a", None, 'answer is null, expected "a"'),
    ],
)
def test_the_first_difference_is_named(expected: object, answer: object, words: str) -> None:
    assert difference(expected, answer, 1e-4) == words


def test_a_checkpoint_without_cases(tmp_path: Path) -> None:
    assert read_cases(str(tmp_path)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"path": "/predict"}',
        b'{"path": "http://x/", "tolerance": 0, "cases": []}',
        b'{"path": "/a b", "tolerance": 0, "cases": []}',
        b'{"path": "/a\\r\\nX: y", "tolerance": 0, "cases": []}',
        b'{"path": "/p", "tolerance": -1, "cases": []}',
        b'{"path": "/p", "tolerance": NaN, "cases": []}',
        b'{"path": "/p", "tolerance": 0, "cases": [1]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedCases):
        parse_cases(data)


def test_cases_of_a_trainer_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from longboat.launcher import trainer, trainer_rare

    monkeypatch.setenv("LONGBOAT_CHECKPOINT_DIR", str(tmp_path))
    trainer._files.clear()
    trainer_rare.golden(np.zeros((1, 2)), [{"y": np.float32(0.5)}], path="/p", tolerance=0.01)
    with trainer.checkpoint(1):
        pass
    with trainer.checkpoint(2):
        trainer_rare.golden([[1], [2]], [1, 2])
    with pytest.raises(KeyError), trainer.checkpoint(3):
        trainer_rare.golden([[3]], [3])
        raise KeyError("disk")
    with trainer.checkpoint(3):
        pass
    assert read_cases(str(tmp_path / "step-3")) is None  # they were of another checkpoint
    first, second = read_cases(str(tmp_path / "step-1")), read_cases(str(tmp_path / "step-2"))
    assert first is not None and second is not None
    assert (first.path, first.tolerance, first.cases) == ("/p", 0.01, [([0.0, 0.0], {"y": 0.5})])
    assert (second.path, second.cases) == ("/predict", [([1], 1), ([2], 2)])


def test_cases_that_cannot_be_saved_break_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from longboat.launcher import trainer, trainer_rare

    monkeypatch.setenv("LONGBOAT_CHECKPOINT_DIR", str(tmp_path))
    trainer._files.clear()
    warned: list[str] = []
    monkeypatch.setattr(trainer_rare, "_warn", warned.append)
    trainer_rare.golden([1, 2], [1])
    trainer_rare.golden(object(), object())
    trainer_rare.golden([1], [object()])
    with trainer.checkpoint(1) as folder:
        Path(folder, "model").write_text("x")
    assert json.loads((tmp_path / "step-1" / ".complete").read_text())["step"] == 1
    assert not (tmp_path / "step-1" / "golden.json").exists()
    assert len(warned) == 3


def test_numbers_that_no_float_can_hold() -> None:
    for expected, answer in ((10**400, 1.5), (1.5, 10**400), (10**5000, 1.5)):
        problem = difference(expected, answer, 0.1)
        assert problem is not None and "too large" in problem
    assert difference(10**400, 10**400, 0.1) is None
    with pytest.raises(DamagedCases):
        parse_cases(b'{"path": "/p", "cases": [], "tolerance": 1%s}' % (b"0" * 400))
