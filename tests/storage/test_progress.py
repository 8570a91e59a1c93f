"""Progress of transfers in words."""

from __future__ import annotations

import pytest

from longboat.storage import progress


@pytest.mark.parametrize(
    ("done", "total", "words"),
    [
        (0, 10, "0 B of 10 B (0 %)"),
        (1288490189, 5368709120, "1.2 GiB of 5.0 GiB (24 %)"),
        (5 << 20, None, "5.0 MiB"),
        (1023 << 10, 1 << 20, "1.0 MiB of 1.0 MiB (99 %)"),
        (3, 0, "3 B"),
    ],
)
def test_sizes(done: int, total: int | None, words: str) -> None:
    assert progress.progress_words(done, total) == words


def test_progress_is_reported_at_most_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("longboat.storage.progress.time.monotonic", lambda: clock[0])
    told: list[str] = []
    report = progress.reporter(told.append, "imports x", 30.0)
    for clock[0] in (100.0, 129.0, 130.0, 131.0, 159.9, 160.0):
        report(int(clock[0]), 200)
    assert told == ["imports x: 130 B of 200 B (65 %)", "imports x: 160 B of 200 B (80 %)"]
