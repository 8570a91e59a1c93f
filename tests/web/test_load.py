"""What many or large requests cost: threads of places that hang, followed logs, windows of long logs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

from longboat.core.errors import UsageError
from longboat.core.runs import LogQuery
from longboat.engines.shared import logfiles
from longboat.engines.shared.logfiles import Reader, Source, last_lines, matcher
from longboat.web.answers import MOST_AT_ONCE, MOST_WAITING, Rejected
from longboat.web.app import Dashboard, make_app
from longboat.web.events import EventLog
from longboat.web.places import ShownPlace
from longboat.web.views import logs
from longboat.web.views.logs import LogStreams, query_of
from longboat.web.watching import Watchers
from tests.web.asgi import ask
from tests.web.dashboards import BEARER, RULES


class HangingEngine:
    """Answers nothing until it is let go."""

    name = "local"

    def __init__(self) -> None:
        self.go = threading.Event()

    def status(self, run: str) -> Any:
        self.go.wait()
        raise Rejected(404, "gone")

    def logs(self, run: str, query: LogQuery, is_wanted: Any = None) -> Iterator[Any]:
        self.go.wait()
        yield from ()


def test_a_place_that_hangs_takes_no_thread_of_others() -> None:
    far = HangingEngine()
    place = ShownPlace("far", "far", "local", far)  # type: ignore[arg-type]
    app = make_app(Dashboard(Watchers([place], EventLog()), RULES))
    count = MOST_AT_ONCE + MOST_WAITING + 5

    async def load() -> list[int]:
        asked = [asyncio.ensure_future(ask(app, "GET", f"/api/runs/far/x{n}", BEARER)) for n in range(count)]
        try:
            refused = [answer.status for answer in await asyncio.gather(*asked[-5:])]
            for name in ("state", "runs"):
                answer = await asyncio.wait_for(ask(app, "GET", f"/api/{name}", BEARER), 60)
                assert answer.status == 200
        finally:
            far.go.set()
        return refused + [answer.status for answer in await asyncio.gather(*asked[:-5])]

    assert asyncio.run(load()) == [503] * 5 + [404] * (count - 5)


def test_a_followed_log_holds_its_place_until_its_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_STREAMS", 3)
    far, streams = HangingEngine(), LogStreams()
    place = ShownPlace("far", "far", "local", far)  # type: ignore[arg-type]

    async def come_and_go(name: str) -> bytes:
        pieces = streams.follow(place, "run", {"grep": [name]}, None)
        first = await anext(aiter(pieces))
        await pieces.aclose()  # type: ignore[attr-defined]
        return first

    try:
        for number in range(3):
            streams.check_room()
            assert b"heartbeat" in asyncio.run(come_and_go(f"x{number}"))
        with pytest.raises(Rejected, match="3 logs"):
            streams.check_room()
        assert b"event: end" in asyncio.run(come_and_go("y"))
    finally:
        far.go.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "log-run"]:
        thread.join(60)
    streams.check_room()


def source(path: Path, rank: int = 0) -> Source:
    return Source(path=str(path), role="worker", node="worker-0", rank=rank, stream="out", attempt=0)


def test_the_last_lines_of_all_ranks_do_not_grow_with_their_number(tmp_path: Path) -> None:
    readers = []
    for rank in range(4):
        (tmp_path / f"{rank}.out").write_bytes(b"".join(b"%d\n" % number for number in range(50)))
        readers.append(Reader(source(tmp_path / f"{rank}.out", rank)))
    lines = [line for reader in readers for line in reader.lines(is_last=True)]
    assert len(last_lines(iter(lines), 10)) == 40
    assert last_lines(iter(lines), 10, of_all=True) == lines[-10:]


def test_a_search_reads_no_more_of_a_file_than_a_window(tmp_path: Path) -> None:
    path = tmp_path / "0.out"
    path.write_bytes(b"hit first\n" + b"miss\n" * 1000 + b"hit last\n")
    for most, hits in ((None, [b"hit first\n", b"hit last\n"]), (100, [b"hit last\n"])):
        query = LogQuery(grep=("hit",), tail=10, tail_bytes=most)
        reader = Reader(source(path), query)
        reader.skip_to(query)
        assert [line.data for line in reader.lines(is_last=True)] == hits


def test_searches_of_requests_are_plain_and_see_the_beginning_of_a_line() -> None:
    plain = matcher(query_of({"grep": [".*error"]}))
    assert plain is not None and list(plain([b"a .*error", b"an error"])) == [True, False]
    pattern = matcher(query_of({"grep": [".*error"], "regex": ["1"]}))
    lines = [b"an error", b"none", b"x" * logs.LONGEST_TEXT + b"error", b"\xff error"]
    assert pattern is not None and list(pattern(lines)) == [True, False, False, True]


def test_an_expression_that_takes_for_ever_is_stopped_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfiles, "SEARCH_S", 0.2)
    endless = matcher(query_of({"grep": ["(a+)+b"], "regex": ["1"]}))
    assert endless is not None
    with ThreadPoolExecutor(1) as pool:
        search = pool.submit(endless, [b"a" * 5000])
        assert list(endless([b"ab", b"a"])) == [True, False]  # this thread goes on
        with pytest.raises(UsageError, match="stopped after 0.2 s"):
            search.result()
    assert list(endless([b"a", b"ab"])) == [False, True]
