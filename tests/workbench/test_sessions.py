"""Whose notebook is opened again: one's own, of the kind that is meant, that goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.errors import NotFound, Refused
from longboat.core.runs import RunStatus
from longboat.engines.shared.home import current_user
from longboat.workbench import sessions
from longboat.workbench.jobs import KIND_LABEL
from longboat.workbench.sessions import BenchSession, check_from_here, is_sound, open_runs

OWN = RunStatus(
    name="own",
    uid="1",
    job="notebook",
    phase="running",
    engine="kubernetes",
    created=0.0,
    nodes=1,
    gpus=0,
    user=current_user(),
    labels={KIND_LABEL: "notebook"},
)


class Listed:
    """An engine, as far as it is asked: its runs, and which of them were submitted from here."""

    def __init__(self, runs: list[RunStatus], foreign: tuple[str, ...] = ()) -> None:
        self._runs, self._foreign = runs, foreign

    def list(self) -> list[RunStatus]:
        return self._runs

    def resubmission(self, run: str) -> None:
        if run in self._foreign:
            raise NotFound(f"{run} was not submitted from here")


def changed(name: str, **fields: Any) -> RunStatus:
    return msgspec.structs.replace(OWN, name=name, **fields)


def test_only_ones_own_that_goes_on() -> None:
    others = changed("others", user="somebody")
    claimed = changed("claimed")  # says that it is ours, and was submitted from elsewhere
    ended = changed("ended", phase="succeeded")
    board = changed("board", labels={KIND_LABEL: "board"})
    training = changed("training", labels={})
    engine: Any = Listed([others, claimed, ended, board, training, OWN], foreign=("claimed",))
    assert [run.name for run in open_runs(engine, "notebook")] == ["own"]


def test_the_url_has_the_token_where_there_is_one() -> None:
    session = BenchSession(kind="lab", launcher=(), port=1, token="t", path="/lab")
    assert session.url(8888) == "http://127.0.0.1:8888/lab?token=t"
    assert BenchSession(kind="board", launcher=()).url(6006) == "http://127.0.0.1:6006/"


LAB = BenchSession(kind="lab", launcher=(), port=8888, token="t0-_", path="/lab/tree/a%20b.ipynb")


def test_a_session_that_leads_to_its_port() -> None:
    assert is_sound(LAB)
    assert is_sound(BenchSession(kind="hold", launcher=()))


@pytest.mark.parametrize(
    "fields",
    [{"port": -1}, {"port": 65536}, {"path": ""}, {"path": "@evil.example/"}, {"path": "//evil.example/"},
     {"path": "/a\nb"}, {"path": "/\x1b]0;x\x07"}, {"path": "/\u202e"}, {"token": "a\nb"}, {"token": "\u00e4"}],
)  # fmt: skip
def test_a_session_that_leads_elsewhere(fields: dict[str, Any]) -> None:
    assert not is_sound(msgspec.structs.replace(LAB, **fields))


def test_a_run_of_another_home_is_not_opened() -> None:
    engine: Any = Listed([OWN], foreign=("own",))
    with pytest.raises(Refused, match="not submitted from here"):
        check_from_here(engine, OWN)


def test_where_a_session_is_read_is_not_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    content = msgspec.json.encode(msgspec.structs.replace(LAB, pod=("kube-system", "other")))
    for pod in (None, ("ns", "own-0")):
        monkeypatch.setattr(sessions, "_read", lambda engine, run, pod=pod: (content, "/node", pod))
        session = sessions.read_session(Listed([OWN]), OWN)  # type: ignore[arg-type]
        assert session is not None and (session.folder, session.pod) == ("/node", pod)
