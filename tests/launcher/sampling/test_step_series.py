"""Points that a rank appends and the launcher takes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from longboat.launcher.sampling.step_series import MOST_NAMES, StepSeries


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(line + "\n" for line in lines)


def test_nothing_is_lost_between_writer_and_reader(tmp_path: Path) -> None:
    path = tmp_path / "0.series"
    series = StepSeries(str(path))
    append(path, '[1, 10.0, {"loss": 0.5}]')
    assert series.take(0.0) == []  # taken away, read a turn later: somebody may be writing
    append(path, '[2, 11.0, {"loss": 0.25}]')
    assert series.take(0.0) == [[10.0, 1, {"loss": 0.5}]]
    append(path, '[3, 12.0, {"loss": NaN, "lr": 1}]')
    assert series.take(0.0, is_last=True) == [[11.0, 2, {"loss": 0.25}], [12.0, 3, {"loss": None, "lr": 1.0}]]
    assert series.bad == {"loss": 3}
    assert series.take(0.0, is_last=True) == []


def test_points_closer_together_than_asked_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "0.series"
    append(path, *(f'[{n}, {10 + n / 10}, {{"loss": 1}}]' for n in range(20)), '[19, 11.9, {"accuracy": 1}]')
    series = StepSeries(str(path))
    assert series.take(0.5) == []
    assert [point[1] for point in series.take(0.5)] == [0, 5, 10, 15, 19]


def test_how_fast_a_rank_steps(tmp_path: Path) -> None:
    path = tmp_path / "0.series"
    append(path, *(f"[{n}, {100 + n / 4}, {{}}]" for n in range(400)))
    series = StepSeries(str(path))
    assert series.pace() is None
    series.take(0.0, is_last=True)
    rate, steps = series.pace() or (0.0, 0)
    assert round(rate, 3) == 4.0 and steps == 399
    append(path, "[3, 300.0, {}]", "[5, 301.0, {}]")  # it began again
    series.take(0.0, is_last=True)
    assert series.pace() == (2.0, 2)


@given(st.lists(st.binary(max_size=60) | st.text(max_size=40).map(str.encode), max_size=10))
def test_anything_may_be_in_the_file(tmp_path_factory: object, lines: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0.series"
        path.write_bytes(b"\n".join(lines) + b'\n[1, 2.0, {"x": 1e999}]\n[[[[\n["a", 1, {}]\n[1, 1, [1]]\n')
        StepSeries(str(path)).take(0.0, is_last=True)


def test_names_without_end_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "0.series"
    append(path, *(f'[{n}, {n}.0, {{"m{n}": 1}}]' for n in range(1, 500)), f'[500, 500.0, {{"{"x" * 500}": 1}}]')
    names = {name for point in StepSeries(str(path)).take(0.0, is_last=True) for name in point[2]}
    assert len(names) == MOST_NAMES


def test_the_last_point_of_all_is_kept_however_close(tmp_path: Path) -> None:
    path = tmp_path / "0.series"
    append(path, *(f'[{n}, {10 + n / 10}, {{"loss": {n}}}]' for n in range(20)))
    series = StepSeries(str(path))
    assert series.take(100.0) == []
    assert [point[1] for point in series.take(100.0)] == [0]
    append(path, '[20, 12.0, {"accuracy": 1}]')
    assert series.take(100.0, is_last=True) == [[12.0, 20, {"accuracy": 1.0}], [11.9, 19, {"loss": 19.0}]]
    assert series.take(100.0, is_last=True) == []


def test_sets_of_names_without_end_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "0.series"
    names = [f"m{n}" for n in range(40)]
    pairs = [(first, second) for first in names for second in names if first < second]
    append(path, *(f'[{n}, {n}.0, {{"{one}": 1, "{two}": 1}}]' for n, (one, two) in enumerate(pairs)))
    series = StepSeries(str(path))
    taken = series.take(1000.0, is_last=True)
    assert len(pairs) > 2 * MOST_NAMES and len(series._kept) <= MOST_NAMES + 1
    assert MOST_NAMES <= len(taken) <= 2 * (MOST_NAMES + 1) and taken[-1][1] == len(pairs) - 1
