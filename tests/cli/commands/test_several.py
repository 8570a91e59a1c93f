"""`--on A,B`: the choice, the lists over several places, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from longboat.engines.shared.files import write_value
from longboat.multicluster.failover_steps import FailoverState
from tests.cli.conftest import Longboat

AWAY = """
apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "http://no-such-host.invalid:1"}}]
contexts: [{name: away, context: {cluster: away}}]
"""


@pytest.fixture
def places(longboat: Longboat, tmp_path: Path) -> Longboat:
    """This machine with one GPU, and a cluster whose address leads nowhere."""
    (tmp_path / "kubeconfig").write_text(AWAY)
    longboat.environment.update(KUBECONFIG=str(tmp_path / "kubeconfig"), LONGBOAT_GPUS="g0")
    longboat("config", "set", "groups.mine", "[local, away]")
    return longboat


def test_the_place_that_answers_runs_it_and_lists_name_the_other(places: Longboat) -> None:
    done = places("run", "--on", "mine", "--gpus", "1", "train.py", "--epochs", "1")
    assert done.out == "epoch 0\n"
    assert "note: on local: room now, own machines" in done.err
    assert "note: not on away: not known (" in done.err
    listed = places("ps", "--on", "all")
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [["train", "local", "succeeded"]]
    assert "away is not listed: " in listed.err
    (record,) = json.loads(places("ps", "--on", "local,away", "-o", "json").out)
    assert (record["on"], record["name"]) == ("local", "train")
    assert places("gpus").out.splitlines()[1].split() == ["local", "GPU", "-", "1", "1", "1", "1", "own"]


def test_a_run_that_is_named_is_looked_for_in_all_of_them(places: Longboat) -> None:
    places("run", "--on", "local", "--name", "first", "train.py", "--epochs", "1")
    done = places("run", "--on", "away,local", "--after", "first", "train.py", "--epochs", "1")
    assert "on local: room now" in done.err and done.out == "epoch 0\n"
    done = places("run", "--on", "away,local", "--resume", "first", "train.py", code=202)
    assert "no complete checkpoint to resume from" in done.err, "it was found: it has none"
    assert "no-such-host" in places("run", "--on", "away,local", "--after", "gone", "train.py", code=205).err


def test_what_no_place_runs_and_what_takes_one_place(places: Longboat) -> None:
    done = places("run", "--on", "mine", "--gpus", "2", "train.py", code=205)
    assert "not on local: can never run it" in done.err
    assert "error: none of local, away is known to run this job" in done.err
    assert (
        "error: --on mine names several places, and this command takes one"
        in places("logs", "--on", "mine", code=201).err
    )
    assert "needs several clusters" in places("run", "--failover", "1m", "train.py", code=201).err
    done = places("run", "--on", "mine", "--id", "known", "train.py", code=205)
    assert "known may be on away, which does not answer" in done.err


def test_a_misspelt_place_is_an_error_in_a_list_too(places: Longboat) -> None:
    for command in (("run", "--on", "awya,local", "train.py"), ("gpus", "--on", "local,awya"), ("ps", "--on", "awya")):
        done = places(*command, code=205)
        assert "did you mean" in done.err and "away" in done.err and "train" not in done.out
    places("config", "set", "groups.old", "[local, gone]")
    assert "the group old names 'gone', which is no context" in places("gpus", "--on", "old", code=205).err
    for command in (("ps", "--on", ""), ("ui", "--on", ""), ("volume", "ls", "--on", ""), ("ps", "--on", ",")):
        assert "hint: " in places(*command, code=201).err


def test_groups_that_cannot_be(places: Longboat) -> None:
    for name in ("all", "local"):
        assert "meaning of its own" in places("config", "set", f"groups.{name}", "[away]", code=201).err
    assert "which is a group" in places("config", "set", "groups.more", "[mine]", code=201).err


def test_a_place_that_is_away_is_named_with_its_reason(places: Longboat) -> None:
    done = places("gpus", "h100", "--on", "mine")
    assert "no GPUs called h100 in: local\n" in done.err
    assert "no-such-host.invalid" in places("cost", "--on", "away", code=205).err


def test_where_none_answers_nothing_was_counted(places: Longboat, tmp_path: Path) -> None:
    """Not `no run had GPUs` and exit code 0, which a script would take for an answer."""
    more = AWAY.replace("contexts: [", "contexts: [{name: far, context: {cluster: away}}, ")
    (tmp_path / "kubeconfig").write_text(more)
    for words in (("cost",), ("cost", "--by", "pool", "-o", "csv"), ("gpus",), ("gpus", "-o", "json"), ("ps",)):
        done = places(*words, "--on", "away,far", code=205)
        assert "no-such-host.invalid" in done.err and done.out == ""


def test_machine_types_of_the_clouds(longboat: Longboat) -> None:
    done = longboat("gpus", "--machines", "h100", "-o", "csv")
    head, first, *_ = done.out.splitlines()
    assert head == "cloud,type,gpus,gpu,memory,cpus,hour,gpu_hour"
    assert "H100" in first


def test_cost_of_runs_on_this_machine(places: Longboat) -> None:
    places("config", "set", "local.gpu_hour", "3600")
    places("config", "set", "currency", "EUR")
    # A second of a GPU: four digits of an hour are kept.
    places("run", "-q", "--name", "train", "--gpus", "1", "--label", "team=vision", "--", "sleep", "1")
    head, row = places("cost", "--by", "label=team").out.splitlines()
    assert head.split() == ["LABEL", "RUNS", "ASKED", "HELD", "USED", "IDLE", "COST"]
    assert row.split()[:2] == ["vision", "1"] and row.endswith("EUR")
    head, row = places("cost", "-o", "csv", "--since", "1h").out.splitlines()
    assert head == "name,on,runs,asked,held,used,paid,idle,cost,currency"
    assert row.startswith("train,local,1,")
    assert json.loads(places("cost", "-o", "json").out)[0]["currency"] == "EUR"
    assert "cost:" in places("status", "train").out
    places("config", "set", "budgets.team=vision.gpu_hours", "1")
    assert "budget team=vision: 0.0 of 1 GPU-hours of the last 30d" in places("cost").err
    assert "hint: run, user, label, label=KEY or pool" in places("cost", "--by", "color", code=201).err


def test_a_detached_run_is_looked_after_by_a_process_of_its_own(places: Longboat, home: Path) -> None:
    failovers = home / "failovers"
    places("run", "-d", "--id", "holder", "--gpus", "1", "--", "sleep", "600")
    away = ("run", "-d", "--on", "local,away", "--failover", "1h", "--gpus", "1")
    assert "of another job" in places(*away, "--id", "holder", "--", "sleep", "1", code=201).err
    name = places(*away, "--", "sleep", "600").out.strip()
    assert "another command looks after" in places(*away, "--id", name, "--", "sleep", "600", code=201).err
    assert name not in places("ps").err
    places("stop", "holder")
    deadline = time.monotonic() + 120.0  # far more than it takes on a machine that is busy
    while list(failovers.iterdir()):  # until it has started
        assert time.monotonic() < deadline, "the run never started"
        time.sleep(0.05)
    assert places("status", name, "-o", "json").out

    state = FailoverState(run="lost", places=("away",), step="refused", since=time.time(), refused="quota")
    write_value(failovers / "lost.json", state)
    assert "note: lost runs nowhere, no place takes it: quota (see " in places("ps").err
    assert "error: lost runs nowhere, no place takes it: quota" in places("status", "lost", code=202).err
