"""A run that moves to another place: on real embedded engines, with the network cut before and after every request."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.shared.home import Home
from longboat.multicluster import failover as module
from longboat.multicluster.ask import NamedEngine, ask_outlooks
from longboat.multicluster.failover import Failover
from longboat.specs.read import read_job

RUN = "moving"
LONG_S = 120.0  # far more than it takes on a machine that is busy
WIRED = ("submit", "status", "stop", "delete", "resubmission", "outlook")


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


class Wire:
    """Requests to all places, counted; one of them is cut: it does not arrive, or its answer does not come back."""

    def __init__(self, cut: int | None = None, *, is_answer: bool = False) -> None:
        self.cut, self.is_answer = cut, is_answer
        self.count = itertools.count(1)
        self.lock = threading.Lock()

    def call(self, method: Any, *args: Any, **options: Any) -> Any:
        with self.lock:
            is_cut = next(self.count) == self.cut
        if is_cut and not self.is_answer:
            raise EngineError("the line is cut")
        answer = method(*args, **options)
        if is_cut:
            raise EngineError("the line is cut")
        return answer


def wired(engine: LocalEngine, wire: Wire) -> LocalEngine:
    """The engine itself, with the wire before the methods that a cluster would be asked by requests."""
    line = LocalEngine(engine.home.root, environment=engine.environment)
    for name in WIRED:
        method = getattr(engine, name)
        setattr(line, name, lambda *args, _method=method, **options: wire.call(_method, *args, **options))
    return line


class TwoHomes:
    """Two embedded engines with one GPU each; that of `a` is taken."""

    def __init__(self, root: Path) -> None:
        environment = {**os.environ, "LONGBOAT_GPUS": "gpu0", "LONGBOAT_HOME": str(root / "mine")}
        self.root = root
        self.engines = {name: LocalEngine(root / name, environment=environment) for name in "ab"}
        self.holder = self.submission(["sleep", "600"], run_id="holder")
        self.moving = self.submission(["sleep", "600"], run_id=RUN)
        self.engines["a"].submit(self.holder)
        until(lambda: self.engines["a"].status("holder").phase == "running", "the GPU is taken")

    def submission(self, run: list[str], run_id: str) -> Submission:
        loaded = read_job([], fields={"name": run_id, "run": run, "gpus": 1, "workdir": None}, environment={})
        return Submission(job=loaded.job, base=str(self.root), run_id=run_id, environment=self.engines["a"].environment)

    def driver(self, wire: Wire, failover_s: float | None = 0.0) -> Failover:
        places = {name: NamedEngine(name, wired(engine, wire)) for name, engine in self.engines.items()}
        home = Home(self.root / "mine")
        home.prepare()
        return Failover(home, places, self.moving, failover_s, tell=lambda text: None)

    def where(self) -> dict[str, RunStatus]:
        """The places where the run is and has not ended."""
        there = {}
        for name, engine in self.engines.items():
            with contextlib.suppress(NotFound):
                there[name] = engine.status(RUN)
        return {name: status for name, status in there.items() if not status.is_final}

    def close(self) -> None:
        for engine in self.engines.values():
            for run in engine.list():
                engine.delete(run.name)


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoHomes]:
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.0)  # the test's patience, not the users'
    two = TwoHomes(tmp_path)
    yield two
    two.close()


def drive(homes: TwoHomes, wire: Wire, *, is_new_each_time: bool) -> RunStatus:
    """Turns until it has settled; after each, and after each crash, it is in one place at most."""
    driver = homes.driver(wire)
    driver.begin("a")
    status: RunStatus | None = None

    def turned() -> bool:
        nonlocal status, driver
        status = driver.turn()
        assert len(homes.where()) <= 1, homes.where()
        if is_new_each_time and status is None:
            driver = homes.driver(wire)  # another process goes on from what was written down
        return status is not None

    until(turned, "the run has settled")
    assert status is not None
    return status


def test_it_moves_to_where_there_is_room_and_is_gone_from_where_it_waited(homes: TwoHomes) -> None:
    wire = Wire()
    assert drive(homes, wire, is_new_each_time=True).phase in ("starting", "running")
    assert list(homes.where()) == ["b"]
    with pytest.raises(NotFound):
        homes.engines["a"].status(RUN)
    assert not list((homes.root / "mine" / "failovers").iterdir())


def test_a_cut_line_never_puts_it_into_two_places(homes: TwoHomes) -> None:
    """The answer to the submission, and the request that stops it: the two that could."""
    for cut, is_answer in ((1, True), (8, False)):
        drive(homes, Wire(cut, is_answer=is_answer), is_new_each_time=True)
        assert list(homes.where()) == ["b"]
        homes.engines["b"].delete(RUN)


@pytest.mark.soak
@pytest.mark.parametrize("is_answer", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize("cut", range(1, 17))
def test_cut_at_every_step(homes: TwoHomes, cut: int, is_answer: bool) -> None:
    assert drive(homes, Wire(cut, is_answer=is_answer), is_new_each_time=bool(cut % 2)).phase != "pending"
    assert list(homes.where()) == ["b"]


def test_a_place_that_never_answers_keeps_the_run(homes: TwoHomes) -> None:
    wire = Wire()
    driver = homes.driver(wire)
    driver.begin("a")
    assert driver.turn() is None
    told: list[str] = []
    silent = Wire()
    silent.call = lambda *args, **options: (_ for _ in ()).throw(EngineError("no route"))  # type: ignore[method-assign]
    places = {"a": NamedEngine("a", wired(homes.engines["a"], silent)), "b": NamedEngine("b", homes.engines["b"])}
    cut_off = Failover(Home(homes.root / "mine"), places, homes.moving, 0.0, tell=told.append)
    for _ in range(5):
        assert cut_off.turn() is None
    assert told == [f"a does not answer: no route; {RUN} is not moved before it does"]
    assert list(homes.where()) == ["a"]
    homes.engines["a"].delete(RUN)
    with pytest.raises(NotFound):
        driver.turn()
    assert homes.driver(wire).transfer is None  # what is nowhere is not on its way


def test_only_one_command_looks_after_a_run(homes: TwoHomes) -> None:
    first, second = homes.driver(Wire()), homes.driver(Wire())
    with first.alone(), pytest.raises(UsageError, match="another command"), second.alone():
        pass


def test_outlooks_of_embedded_engines(homes: TwoHomes) -> None:
    places = [NamedEngine(name, engine) for name, engine in homes.engines.items()]
    job = homes.moving
    first, second = ask_outlooks(places, job)
    assert (first.outlook.answer, second.outlook.answer) == ("waits", "now")
    assert first.outlook.reason == "waits for 1 GPU (0 free); held by holder"
    assert homes.engines["b"].list() == []  # a question leaves nothing
    large = msgspec.structs.replace(
        job, job=read_job([], fields={"name": "x", "run": ["true"], "gpus": 2, "workdir": None}, environment={}).job
    )
    assert [place.outlook.answer for place in ask_outlooks(places, large)] == ["never", "never"]
    after = msgspec.structs.replace(job, job=msgspec.structs.replace(job.job, after=("holder",)))
    told = ask_outlooks(places, after)
    assert told[1].outlook.reason == "it starts after holder, which is no run there"


@pytest.mark.parametrize("is_there", [False, True], ids=["submitted", "there already"])
def test_after_a_crash_it_moves_with_the_code_of_its_first_submission(homes: TwoHomes, is_there: bool) -> None:
    code, shared = homes.root / "code", homes.root / "b" / "bundles"
    code.mkdir()
    shared.parent.mkdir(exist_ok=True)
    shared.symlink_to(homes.root / "a" / "bundles")  # all places of a user have one home
    (code / "train.py").write_text("print('as submitted')\n")
    loaded = read_job([], fields={"name": RUN, "run": ["python3", "train.py"], "gpus": 1}, environment={})
    environment = homes.engines["a"].environment
    homes.moving = Submission(job=loaded.job, base=str(code), run_id=RUN, environment=environment)
    driver = homes.driver(Wire())
    driver.begin("a", homes.engines["a"].submit(homes.moving) if is_there else None)
    assert driver.turn() is None
    (code / "train.py").write_text("print('edited')\n")
    until(lambda: homes.driver(Wire()).turn() is not None, "the run has settled")  # another process at every step
    engine = homes.engines["b"]
    until(lambda: engine.status(RUN).is_final, "the run has ended")
    assert [line.data for line in engine.logs(RUN, LogQuery())] == [b"as submitted\n"]
