"""`longboat sweep`: a grid on this machine from the first trial to its removal, with the real command line."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Longboat

TRAIN = """
import os, sys
import longboat

lr, width = float(sys.argv[1]), longboat.params()["width"]
assert os.environ["LONGBOAT_PARAM_WIDTH"] == str(width) == os.environ["WIDTH"]
longboat.step(1, loss=abs(lr - 0.03) + width / 1000)
sys.exit(9 if width == 13 else 0)
"""
JOB = """
name: tune
run: python train.py ${sweep.lr}
env: {WIDTH: "${sweep.width}"}
"""
WAITS = """
import os, time
open(os.path.join(os.environ["MARKS"], os.environ["LONGBOAT_RUN"] + "-" + os.environ["LONGBOAT_RUN_UID"]), "w").close()
while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.02)
"""


@pytest.fixture
def project(longboat: Longboat) -> Longboat:
    (longboat.folder / "train.py").write_text(TRAIN)
    (longboat.folder / "job.yaml").write_text(JOB)
    return longboat


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.05)


def test_a_grid_from_the_command_line(project: Longboat, home: Path) -> None:
    flags = ("job.yaml", "--param", "lr=0.1,0.03", "--param", "width=16,64", "-n", "tune")
    listed = project("sweep", *flags, "--dry-run", "-o", "json")
    assert [point["params"] for point in json.loads(listed.out)] == [
        {"lr": lr, "width": width} for lr in (0.1, 0.03) for width in (16, 64)
    ]
    done = project("sweep", *flags)
    assert "longboat: tune-t3 (lr=0.03 width=16) succeeded, loss 0.016" in done.err
    assert "again:      longboat rerun tune-t3" in done.out
    status = json.loads(project("sweep", "status", "tune", "-o", "json").out)
    assert (status["phase"], len(status["trials"])) == ("succeeded", 4)
    assert status["trials"][0]["params"] == {"lr": 0.1, "width": 16}
    assert {trial["phase"] for trial in status["trials"]} == {"succeeded"}
    assert status["best"]["params"] == {"lr": 0.03, "width": 16} and status["best"]["metric"] == pytest.approx(0.016)
    assert list(status["importance"]) == ["lr", "width"]
    assert status["space"] == {"lr": [0.1, 0.03], "width": [16, 64]}

    again = project("sweep", *flags)  # nothing new is started, the outcome is the same
    assert "exists already and succeeded: nothing new is started" in again.err
    other = project("sweep", "job.yaml", "--param", "lr=0.5", "--param", "width=1", "-n", "tune", code=201)
    assert "of another job: `sweep` differs" in other.err
    assert "lr=0.03" in project("sweep", "best").out
    assert project("sweep", "ls", "-o", "name").out == "tune\n"
    runs = json.loads(project("ps", "-a", "-l", "sweep=tune", "-o", "json").out)
    assert len(runs) == 4 and {run["priority"] for run in runs} == {-1}
    assert {run["name"]: run["params"] for run in runs}["tune-t3"] == {"lr": 0.03, "width": 16}
    records = [json.loads(path.read_bytes()) for path in home.glob("runs/tune-t*/record.json")]
    assert len({record["bundle"] for record in records}) == 1 and len(records) == 4
    assert project("sweep", "rm", "tune").out == "tune\n"
    assert project("ps", "-a", "-o", "name").out == ""
    assert "no sweeps yet" in project("sweep", "status", "tune", code=202).err


def test_a_failed_trial_is_counted_and_gives_its_exit_code(project: Longboat) -> None:
    done = project("sweep", "job.yaml", "-p", "lr=0.03", "-p", "width=13,16", "--retries", "1", "-n", "bad", code=9)
    assert "bad-t1 (lr=0.03 width=13) failed" in done.err
    status = json.loads(project("sweep", "status", "bad", "-o", "json").out)
    assert [(trial["phase"], trial["attempts"]) for trial in status["trials"]] == [("failed", 2), ("succeeded", 1)]
    assert (status["phase"], status["reason"]) == ("failed", "1 of 2 trials failed")
    assert status["best"]["trial"] == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("job.yaml",), "no parameter has this name"),
        (("--", "true"), "nothing to sweep"),
        (("job.yaml", "-p", "lr"), "expected NAME=VALUES"),
        (("job.yaml", "-p", "lr=1..2", "-p", "width=1"), "how many trials?"),
        (("job.yaml", "-p", "lr=0..2:log", "-p", "width=1", "--trials", "2"), "expected more than 0 where log is true"),
        (("job.yaml", "-p", "lr=1", "-p", "width=1", "-n", "x" * 40), "too long for a sweep"),
        (("job.yaml", "-p", "lr=1", "-p", "width=1", "-o", "json"), "-o goes with --detach"),
        (("nosuch.yaml", "-p", "lr=1"), "nosuch.yaml"),
        (("job.yaml", "-p", "lr=1..0", "-p", "width=1"), "error: --param lr: found min 1 and max 0"),
        (("job.yaml", "-p", "lr=1", "-p", "width=1", "--trials", "0"), "error: --trials: found the number 0"),
        (("job.yaml", "-p", "lr=1,2", "-p", "width=1", "--method", "tpe"), "error: --method: how many trials?"),
        (("job.yaml", "-p", "lr=1", "-p", "lr=2", "-p", "width=1"), "--param lr is given twice"),
        (("train.py", "-p", "lr=1"), "-p stands behind train.py, so it is an argument of train.py"),
    ],
)
def test_mistakes_have_one_message(project: Longboat, args: tuple[str, ...], words: str) -> None:
    process = project.popen("sweep", *args)
    out, err = process.communicate()
    assert process.returncode in (201, 202) and words in err and "Traceback" not in err, err


def test_a_metric_that_no_trial_reports_is_named_with_those_that_they_do(project: Longboat) -> None:
    flags = ("-p", "lr=0.1,0.3", "-p", "width=1", "--metric", "accuracy", "-n", "other")
    done = project("sweep", *flags, "job.yaml")
    assert "best: no trial has reported accuracy; reported is loss" in done.out


def test_a_job_with_a_sweep_is_not_run_by_run(project: Longboat) -> None:
    (project.folder / "job.yaml").write_text(JOB + "sweep: {lr: [1], width: [2]}\n")
    assert "longboat sweep FILE" in project("run", "job.yaml", code=201).err
    single = ("--set", "sweep=null", "--set", "params.lr=0.03", "--set", "params.width=16")
    project("run", "-q", "job.yaml", *single)
    assert "sweep:" in project("check", "job.yaml").out


def test_a_damaged_sweep_is_removed_by_force_and_its_runs_are_named(longboat: Longboat, home: Path) -> None:
    folder = home / "sweeps" / "broken"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{")
    trial = {"number": 1, "params": {"x": 1}, "run": "broken-t1", "phase": "running"}
    (folder / "state.json").write_text(json.dumps({"trials": [trial]}))
    removed = longboat("sweep", "rm", "--force", "broken")
    assert removed.out == "broken\n" and not folder.exists()
    assert "the record of the sweep broken is damaged" in removed.err and "longboat rm broken-t1" in removed.err


def test_a_name_that_is_given_twice_is_one_sweep(project: Longboat) -> None:
    project("sweep", "job.yaml", "--param", "lr=0.1", "--param", "width=16", "-n", "tune", "-q")
    assert project("sweep", "rm", "tune", "tune", "-").out == "tune\n"
    assert project("sweep", "rm", "tune", "tune", code=202).out == ""


def test_stopped_on_request(project: Longboat) -> None:
    folder = waiting(project)
    project("sweep", "-d", "-n", "held", "-p", "n=1,2,3", "--parallel", "2", "train.py")
    until(lambda: len(list(folder.iterdir())) == 2, "two trials")
    assert "has not ended" in project("sweep", "rm", "held", code=201).err
    assert project("sweep", "stop", "held").out == "held\n"
    status = json.loads(project("sweep", "status", "held", "-o", "json").out)
    assert (status["phase"], [trial["phase"] for trial in status["trials"]]) == ("stopped", ["stopped", "stopped"])
    assert project("sweep", "-n", "held", "-p", "n=1,2,3", "--parallel", "2", "train.py", code=143)


def test_bad_trials_are_stopped_early_and_others_take_their_place(project: Longboat) -> None:
    """Those with a high x wait for ever: the sweep ends because they are stopped."""
    (project.folder / "train.py").write_text(
        "import time, longboat\n"
        "x = longboat.params()['x']\n"
        "for step in range(1, 10):\n"
        "    longboat.step(step, loss=x)\n"
        "time.sleep(1.2)\n"
        "longboat.step(10, loss=x)\n"
        "while x > 3:\n"
        "    time.sleep(0.05)\n"
    )
    flags = (
        "--method",
        "asha",
        "--trials",
        "6",
        "--parallel",
        "3",
        "-p",
        "x=1,2,3,7,8,9",
        "--set",
        "sweep.stop.steps=2",
    )
    project("sweep", "-q", "-n", "race", "--grace", "1s", *flags, "--set", "sweep.stop.factor=2", "train.py")
    status = json.loads(project("sweep", "status", "race", "-o", "json").out)
    assert (status["phase"], len(status["trials"])) == ("succeeded", 6)
    phases = {trial["phase"] for trial in status["trials"] if trial["params"]["x"] > 3}
    assert phases <= {"pruned"} and status["best"]["params"]["x"] <= 3


@pytest.mark.parametrize(("word", "meant"), [("list", "ls"), ("stauts", "status"), ("remove", "rm")])
def test_a_word_that_is_nearly_a_subcommand(longboat: Longboat, word: str, meant: str) -> None:
    said = longboat("sweep", word, code=202).err
    assert f"no subcommand and no file '{word}'\nhint: longboat sweep {meant}\n" in said
    assert "no such file: train" in longboat("sweep", "train", code=202).err
    said = longboat("sweep", "race-9", code=202).err
    assert "no such file: race-9\nhint: if race-9 is a sweep: longboat sweep status race-9\n" in said
    assert "after --: longboat sweep -- COMMAND\n" in longboat("sweep", "nowhere/race.yaml.txt", code=202).err


def test_ctrl_c_stops_the_sweep(project: Longboat) -> None:
    folder = waiting(project)
    process = project.popen("sweep", "-n", "held", "-p", "n=1,2", "train.py")
    until(lambda: len(list(folder.iterdir())) == 2, "two trials")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 143 and "stopping held; Ctrl-C again kills its trials" in err


def waiting(project: Longboat) -> Path:
    """A trainer that notes its start and waits for a gate to open."""
    folder = project.folder / "marks"
    folder.mkdir()
    (project.folder / "train.py").write_text(
        WAITS.replace('os.environ["MARKS"]', repr(str(folder))).replace(
            'os.environ["GATE"]', repr(str(project.folder / "gate"))
        )
    )
    return folder


def driver_pids(home: Path) -> list[int]:
    """Processes that drive a sweep of this home."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"longboat.sdk.sweeps" in b" ".join(words) and (entry / "cwd").resolve().is_relative_to(home):
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


def test_killed_drivers_lose_no_trial_and_make_none_twice(project: Longboat, home: Path) -> None:
    folder = waiting(project)
    values = ",".join(map(str, range(8)))
    process = project.popen("sweep", "-q", "-n", "held", "-p", f"n={values}", "--parallel", "2", "train.py")
    kills = 0
    (project.folder / "gate").write_text("")
    while process.poll() is None and kills < 6:
        for pid in driver_pids(home):
            os.kill(pid, signal.SIGKILL)
            kills += 1
        time.sleep(0.15)
    process.communicate()
    assert process.returncode == 0 and kills >= 3
    status = json.loads(project("sweep", "status", "held", "-o", "json").out)
    assert [(trial["params"]["n"], trial["phase"]) for trial in status["trials"]] == [
        (n, "succeeded") for n in range(8)
    ]
    starts = sorted(path.name.rpartition("-")[0] for path in folder.iterdir())
    assert starts == sorted(f"held-t{number}" for number in range(1, 9))  # one run, and one start, for each
