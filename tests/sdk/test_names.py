"""Which run is meant."""

from __future__ import annotations

import pytest

from longboat.core.errors import NotFound, UsageError
from longboat.sdk.names import match

NAMES = ["digits-3", "dcnn", "digits-2", "digits"]


@pytest.mark.parametrize(
    ("text", "name"), [("-", "digits-3"), ("digits", "digits"), ("dc", "dcnn"), ("digits-2", "digits-2")]
)
def test_matches(text: str, name: str) -> None:
    assert match(text, NAMES) == name


def test_an_ambiguous_beginning_lists_the_candidates() -> None:
    with pytest.raises(UsageError) as caught:
        match("di", NAMES)
    assert caught.value.hint == "one of digits-3, digits-2, digits"


@pytest.mark.parametrize(("text", "hint"), [("digist", "did you mean digits"), ("zzz", "ps -a"), ("", "ps -a")])
def test_no_such_run(text: str, hint: str) -> None:
    with pytest.raises(NotFound) as caught:
        match(text, NAMES)
    assert hint in (caught.value.hint or "")


def test_a_beginning_is_not_enough_where_the_whole_name_is_asked_for() -> None:
    assert match(NAMES[0], NAMES, is_whole=True) == match("-", NAMES, is_whole=True) == NAMES[0]
    with pytest.raises(NotFound) as caught:
        match(NAMES[0][:-1], NAMES, is_whole=True)
    assert NAMES[0] in (caught.value.hint or "")


def test_the_latest_run_where_there_are_no_runs() -> None:
    with pytest.raises(NotFound, match="no runs yet"):
        match("-", [])


def test_the_latest_run_is_no_replica_of_a_service() -> None:
    from typing import cast

    from longboat.core.runs import REPLICA_OF, RunStatus
    from longboat.engines.engine import Engine
    from longboat.sdk.names import find_run

    def run(name: str, **labels: str) -> RunStatus:
        common = {"uid": name, "job": name, "phase": "running", "engine": "local", "created": 0.0}
        return RunStatus(name=name, nodes=1, gpus=0, labels=labels, **common)  # type: ignore[arg-type]

    class Listing:
        runs = (run("svc-r1", **{REPLICA_OF: "1"}), run("train"))

        def list(self) -> tuple[RunStatus, ...]:
            return self.runs

        def status(self, name: str) -> RunStatus:
            return next(each for each in self.runs if each.name == name)

    engine = cast(Engine, Listing())
    assert find_run(engine, "-").name == "train"
    assert find_run(engine, "svc-r1").name == "svc-r1"
