"""Steps that a launcher has not taken yet are part of a run's series, each once."""

from __future__ import annotations

from pathlib import Path

from longboat.engines.local.metrics import fresh_rows
from longboat.metrics.series_file import parse


def test_steps_that_were_not_taken_yet_are_rows_and_what_is_cut_is_none(tmp_path: Path) -> None:
    (tmp_path / "3.series.taken").write_text('[1, 10.1234, {"loss": 2.0}]\n[2, 11.0, {"loss": 1.5}]\n')
    (tmp_path / "3.series").write_text('[3, 12.0, {"loss": 1.0}]\n[4, 12.5, {"lo')
    (tmp_path / "odd.series").write_text("[1, 1.0, {}]\n")
    rows = fresh_rows(tmp_path)
    assert rows[0] == b'["step",10.123,3,1,{"loss":2.0}]'  # as the launcher writes it
    points = parse(b"\n".join(rows), node="worker-0", attempt=0).steps["loss"][3]
    assert [(step, value) for step, _, value in points] == [(1, 2.0), (2, 1.5), (3, 1.0)]
    assert fresh_rows(tmp_path / "missing") == []
