"""The engine under test and how the promises are tried: submit, wait, read.

The tests speak to the interface in engines/engine.py only; `places` holds what differs from engine to engine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.engine import Engine, Submission
from longboat.specs.read import read_job
from tests.conformance.places import PLACES, Place

LONG_S = 180.0
"""No test waits longer for what must happen; how long it takes is no matter of these tests."""


IN_PODMAN = frozenset(
    {
        "test_more_memory_than_allowed",
        "test_ranks_have_time_to_save",
        "test_nothing_is_left_but_checkpoints",
        "test_a_secret_reaches_the_ranks_and_no_file",
        "test_a_folder_as_a_volume",
        "test_commands_beside_the_ranks",
    }
)
"""What is most likely to differ in containers, with every run of the tests; the others are run by `make soak`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("podman") and getattr(item, "originalname", "") not in IN_PODMAN:
            if "conformance" in item.path.parts:
                item.add_marker(pytest.mark.soak)


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, (_, marks) in PLACES.items()])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with PLACES[request.param][0](request, tmp_path) as opened:
        yield opened


@pytest.fixture
def engine(place: Place) -> Engine:
    return place.engine


class Jobs:
    """Submits jobs whose code is given as text, and reads what became of them."""

    def __init__(self, place: Place, root: Path) -> None:
        self.place = place
        self.engine = place.engine
        self.root = root

    def submission(
        self,
        code: str = "",
        *,
        files: Mapping[str, str] | None = None,
        run_id: str | None = None,
        environment: Mapping[str, str] | None = None,
        **fields: object,
    ) -> Submission:
        """`code` is train.py, run by default; `fields` are those of a job file."""
        folder = self.root / "code"
        folder.mkdir(exist_ok=True)
        for name, text in {"train.py": code, **(files or {})}.items():
            (folder / name).write_text(text)
        environment = self.place.environment if environment is None else environment
        given = {"name": "job", "run": ["python", "train.py"], "grace": "5s", **self.place.fields, **fields}
        loaded = read_job([], fields=given, environment=environment, cwd=folder)
        return Submission(job=loaded.job, base=loaded.base, run_id=run_id, environment=environment)

    def submit(self, code: str = "", **fields: object) -> RunStatus:
        return self.engine.submit(self.submission(code, **fields))  # type: ignore[arg-type]

    def run(self, code: str = "", **fields: object) -> RunStatus:
        """Submit and wait for the end."""
        return self.wait(self.submit(code, **fields).name)

    def wait(self, run: str) -> RunStatus:
        return self.engine.wait(run, timeout_s=LONG_S)

    def text(self, run: str, *, rank: int | None = None, stream: str | None = None, attempt: int | None = None) -> str:
        """What ranks wrote."""
        query = LogQuery(ranks=() if rank is None else (rank,), attempt=attempt)
        lines = [line for line in self.engine.logs(run, query) if line.rank >= 0]
        return b"".join(line.data for line in lines if stream in (None, line.stream)).decode()

    def checkpoints(self, run: str) -> list[str]:
        """Names in the run's checkpoint folder, wherever that is, less the fences of attempts."""
        copy = Path(tempfile.mkdtemp(dir=self.root)) / "checkpoints"
        self.engine.copy_from(run, "checkpoints", copy)
        return sorted(path.name for path in copy.iterdir() if not path.name.startswith(".attempt-"))

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            time.sleep(0.02)

    def until_phase(self, run: str, *phases: str) -> RunStatus:
        self.until(lambda: self.engine.status(run).phase in phases, f"{run} is {' or '.join(phases)}")
        return self.engine.status(run)

    def until_said(self, run: str, text: str, *, times: int = 1) -> None:
        self.until(lambda: self.text(run).count(text) >= times, f"{run} says {text!r} {times} times")


@pytest.fixture
def jobs(place: Place, tmp_path: Path) -> Jobs:
    return Jobs(place, tmp_path)
