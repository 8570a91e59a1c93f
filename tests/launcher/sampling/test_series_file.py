"""The file of a node's metrics: bounded however long a run is, and of one resolution from its beginning to its end."""

from __future__ import annotations

from pathlib import Path

from longboat.launcher.sampling import series_file
from longboat.launcher.sampling.series_file import SeriesFile, read_rows, thin
from longboat.metrics.series_file import join, parse


def test_a_long_run_stays_within_the_bound_and_keeps_its_beginning(tmp_path: Path) -> None:
    file = SeriesFile(str(tmp_path / "m"), 0)
    file.limit = 20_000
    file.describe(columns={"rank": ["cpu"]})
    for n in range(3000):
        file.add(["rank", 1000.0 + 5 * n, 0, 1.0])
        file.add(["step", 1000.0 + 5 * n, 0, n, {"loss": float(n)}])
        file.flush()
        assert (tmp_path / "m").stat().st_size <= 20_000
    metrics = join("r", [parse((tmp_path / "m").read_bytes(), node="w-0", attempt=0)])
    steps = [step for step, _, _ in metrics.series["loss"]]
    assert steps[0] < 100 and steps[-1] == 2999
    early, late = (sum(1 for step in steps if low <= step < low + 1000) for low in (0, 1000))
    assert abs(early - late) <= 2 and early > 10
    assert {value for _, value in metrics.system["0"]["cpu"]} == {1.0}


def test_thinning_takes_means_of_samples_and_the_last_of_the_trainers_numbers() -> None:
    rows = [["rank", 1.0, 0, 2.0, None], ["rank", 2.0, 0, 4.0, None], ["step", 1.0, 0, 1, {"a": 1}]]
    rows += [["step", 2.0, 0, 2, {"a": 2}], ["step", 2.0, 0, 2, {"b": 3}]]
    assert thin(rows, 10.0) == [
        ["rank", 2.0, 0, 3.0, None],
        ["step", 2.0, 0, 2, {"a": 2}],
        ["step", 2.0, 0, 2, {"b": 3}],
    ]


def test_lines_that_are_cut_or_damaged_are_none() -> None:
    assert read_rows(b'["rank",1,0,2]\n{"v":1}\n["rank",2,0,\n\xff\n[]\n["rank",3,0,') == [["rank", 1, 0, 2]]


def test_a_disk_that_cannot_be_written_costs_rows_and_nothing_else(tmp_path: Path) -> None:
    file = SeriesFile(str(tmp_path / "missing" / "m"), 1)
    file.add(["rank", 1.0, 0, 1.0])
    file.flush()
    (tmp_path / "missing").mkdir()
    file.add(["rank", 2.0, 0, 1.0])
    file.flush()
    assert series_file.read_rows((tmp_path / "missing" / "m").read_bytes()) == [["rank", 2.0, 0, 1.0]]


def test_names_that_change_all_the_time_stay_within_the_bound_and_lose_no_resolution(tmp_path: Path) -> None:
    file = SeriesFile(str(tmp_path / "m"), 0)
    file.limit = 20_000
    for n in range(3000):
        file.add(["step", 1000.0 + n, 0, n, {f"loss of batch {n}": 1.0}])
        file.flush()
        assert (tmp_path / "m").stat().st_size <= 20_000
    assert file.width_s[True] <= 3000
    steps = [row[3] for row in read_rows((tmp_path / "m").read_bytes())]
    assert steps == list(range(3000 - len(steps), 3000)) and len(steps) > 50
