"""Commands that act on a run: wait, stop, rm, exec, cp, explain."""

from __future__ import annotations

import json
import time

import pytest

from longboat.cli.commands.runs.cp import CopyEnd, parse_place


@pytest.fixture
def sleeping(longboat):
    """A run named `sleeper` whose ranks are there."""
    longboat("run", "-d", "-n", "sleeper", "--nodes", "2", "--", "sh", "-c", "echo ready; sleep 600")
    while longboat("logs", "sleeper").out.count("ready") < 2:
        time.sleep(0.05)
    return longboat


def test_wait(longboat) -> None:
    longboat("run", "-d", "-n", "a", "--", "true")
    longboat("run", "-d", "-n", "b", "--", "sh", "-c", "exit 8")
    longboat("run", "-d", "-n", "c", "--", "sh", "-c", "exit 9")
    done = longboat("wait", "a", "b", "c", "-o", "json", code=8)
    assert [run["exit_code"] for run in json.loads(done.out)] == [0, 8, 9]
    assert longboat("wait", "a").code == 0


def test_wait_gives_up_and_the_run_goes_on(sleeping) -> None:
    done = sleeping("wait", "sleeper", "--timeout", "100ms", code=206)
    assert "sleeper has not ended after 0.1s" in done.err
    assert json.loads(sleeping("status", "-o", "json").out)["phase"] == "running"


def test_the_beginning_of_a_name_stops_and_removes_nothing(sleeping) -> None:
    for words in (["stop"], ["rm", "--force"]):
        assert "write the whole name: sleeper" in sleeping(*words, "sleep", code=202).err


def test_stop_then_remove(sleeping) -> None:
    refused = sleeping("rm", "sleeper", code=201)
    assert "sleeper has not ended" in refused.err
    assert sleeping("stop", "sleeper").out == "sleeper\n"
    assert json.loads(sleeping("status", "sleeper", "-o", "json").out)["phase"] == "stopped"
    assert "has ended already: stopped" in sleeping("stop", "sleeper").err
    assert sleeping("rm", "sleeper").out == "sleeper\n"
    assert sleeping("ps", "-a", "-o", "json").out == "[]\n"
    assert sleeping("status", "sleeper", code=202).out == ""


def test_stop_all(sleeping) -> None:
    sleeping("run", "-q", "-n", "done", "--", "true")
    assert sleeping("stop", "--all").out == "sleeper\n"


def test_remove_all_takes_only_the_ended(sleeping) -> None:
    sleeping("run", "-q", "-n", "done", "--", "true")
    assert sleeping("rm", "--all").out == "done\n"
    assert sleeping("rm", "--all", "--force").out == "sleeper\n"


def test_removal_keeps_checkpoints_unless_purged(longboat) -> None:
    script = 'mkdir -p "$LONGBOAT_CHECKPOINT_DIR/step-1"; touch "$LONGBOAT_CHECKPOINT_DIR/step-1/.complete"'
    for name, flags, kept in (("keep", [], True), ("purge", ["--purge"], False)):
        longboat("run", "-q", "-n", name, "--checkpoints", "out", "--", script)
        longboat("rm", name, *flags)
        assert (longboat.folder / "out" / name / "step-1").exists() is kept


def test_exec(sleeping) -> None:
    assert sleeping("exec", "sleeper", "--", "sh", "-c", "echo $RANK; exit 3", code=3).out == "0\n"
    assert sleeping("exec", "--node", "1", "sleeper", "printenv", "RANK").out == "1\n"
    assert sleeping("exec", "sleeper", "--rank", "1", "--", "printenv", "RANK").out == "1\n"
    assert "hint: its nodes: worker-0, worker-1" in sleeping("exec", "--node", "9", "-", "true", code=202).err
    assert "no command to run" in sleeping("exec", "sleeper", code=201).err
    said = sleeping("exec", "--rank", "9", "sleeper", "--", "true", code=202).err
    assert said == "error: sleeper has no rank 9\nhint: its ranks are 0 to 1\n"


def test_exec_has_the_secrets_of_the_run(longboat) -> None:
    longboat("secret", "set", "TOKEN", stdin="s3cret-value")
    longboat("run", "-d", "--id", "r", "--secret", "TOKEN", "--secret", "SHELL_ONLY", "--", "sleep", "60", code=202)
    longboat.environment["SHELL_ONLY"] = "of the shell"
    longboat("run", "-d", "--id", "r", "--secret", "TOKEN", "--secret", "SHELL_ONLY", "--", "sleep", "60")
    del longboat.environment["SHELL_ONLY"]
    while json.loads(longboat("status", "r", "-o", "json").out)["phase"] != "running":
        time.sleep(0.05)
    done = longboat("exec", "r", "--", "sh", "-c", "echo $TOKEN/$SHELL_ONLY")
    assert done.out == "s3cret-value/\n" and "SHELL_ONLY is neither in the environment" in done.err


def test_cp_both_ways(sleeping) -> None:
    (sleeping.folder / "in.txt").write_text("hello")
    sleeping("cp", "in.txt", "sleeper/worker-1:sub/in.txt")
    sleeping("cp", "sleeper/1:sub/in.txt", "out.txt")
    assert (sleeping.folder / "out.txt").read_text() == "hello"
    assert sleeping("cp", "sleeper/1:sub/in.txt", "-").out == "hello"
    assert "only a file can be printed" in sleeping("cp", "sleeper/1:sub", "-", code=201).err
    assert sleeping("cp", "sleeper:sub/in.txt", "x", code=202).err.startswith("error: ")
    assert "exactly one side" in sleeping("cp", "a", "b", code=201).err
    assert "no such file: missing" in sleeping("cp", "missing", "-:x", code=202).err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("run:a/b", CopyEnd("run", None, "a/b")),
        ("run/worker-1:x", CopyEnd("run", "worker-1", "x")),
        ("-:", CopyEnd("-", None, ".")),
        ("plain", CopyEnd(None, None, "plain")),
        ("./a:b", CopyEnd(None, None, "./a:b")),
        ("/a:b", CopyEnd(None, None, "/a:b")),
        ("~/a:b", CopyEnd(None, None, "~/a:b")),
    ],
)
def test_places(text: str, place: CopyEnd) -> None:
    assert parse_place(text) == place


def test_explain_names_the_culprit_the_lines_and_the_next_step(longboat) -> None:
    longboat("run", "-q", "-n", "boom", "--procs", "2", "--", "python", "-c", CULPRIT, code=1)
    done = longboat("explain", "boom")
    assert "rank 1" in done.out.splitlines()[0]
    assert "  | ValueError: loss is NaN" in done.out
    assert "\nnext:\n  - " in done.out
    record = json.loads(longboat("explain", "-o", "json").out)
    assert (record["cause"], record["phase"]) == ("exception", "failed")


CULPRIT = """
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("loss is NaN")
time.sleep(600)
"""
