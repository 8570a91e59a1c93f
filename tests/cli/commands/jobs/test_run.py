"""`longboat run` from start to end, through the real engine."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from longboat.core.errors import RUN_TIMEOUT_EXIT
from tests.cli.conftest import Longboat

JOB = """
name: digits
run: python train.py --epochs 1
secrets: [ONE]
artifacts: [a.txt]
"""


def test_one_rank_is_shown_as_it_is(longboat) -> None:
    done = longboat("run", "train.py", "--epochs", "3")
    assert done.out == "epoch 0\nepoch 1\nepoch 2\n"
    lines = done.err.splitlines()
    assert lines[:2] == ["longboat: run train", "done"]
    assert re.fullmatch(r"longboat: train succeeded in [0-9.]+s", lines[2])


def test_bytes_are_not_touched(longboat) -> None:
    process = longboat.popen("run", "-q", "--", "printf", r"\377\000a\r\nno newline", text=False)
    assert process.communicate() == (b"\xff\x00a\r\nno newline", b"")


def test_several_ranks_have_prefixes_and_the_exit_code_is_the_first_failure_s(longboat) -> None:
    done = longboat("run", "--nodes", "2", "--procs", "2", "train.py", "--epochs", "1", "--fail", "2", code=42)
    prefixes = {line.partition(" | ")[0] for line in done.out.splitlines()}
    assert "worker-1/2" in prefixes and prefixes <= {"worker-0/0", "worker-0/1", "worker-1/2", "worker-1/3"}
    assert "worker-1/2 | epoch 0\n" in done.out
    assert "longboat: run train (2 nodes, 4 ranks)\n" in done.err
    assert "failed" in done.err and "(exit code 42)" in done.err
    assert done.err.endswith("hint: longboat explain train\n")
    assert "\x1b" not in done.out + done.err


def test_an_option_behind_the_script_is_the_scripts_and_that_is_said(longboat) -> None:
    (longboat.folder / "show.py").write_text("import sys; print(sys.argv[1:])")
    done = longboat("run", "show.py", "--nodes", "2")
    assert done.out == "['--nodes', '2']\n"
    assert "note: --nodes is given to show.py: options of longboat come before it\n" in done.err


def test_quiet_leaves_only_the_trainer(longboat) -> None:
    assert longboat("run", "-q", "--", "sh", "-c", "echo a; echo b >&2; exit 9", code=9) == (9, "a\n", "b\n")


def test_a_shell_line(longboat) -> None:
    assert longboat("run", "-q", "--env", "A=${b}", "--", 'echo "$A" | tr a-z A-Z').out == "${B}\n"


def test_detach_prints_the_name_and_nothing_else(longboat) -> None:
    done = longboat("run", "-d", "-n", "first", "--", "sh", "-c", "exit 5")
    assert done == (0, "first\n", "")
    assert longboat("wait", "first", code=5).out.splitlines()[1].split()[:2] == ["first", "failed"]
    record = json.loads(longboat("run", "-d", "-o", "json", "-n", "first", "--", "true").out)
    assert record["name"] == "first-2"
    assert record["phase"] in ("pending", "starting")


def test_the_same_id_is_the_same_run(longboat) -> None:
    for _ in range(2):
        done = longboat("run", "--id", "once", "--", "sh", "-c", "echo ran; exit 4", code=4)
        assert done.out == "ran\n"
    assert longboat("ps", "-o", "name").out == "once\n"


def test_ctrl_c_asks_the_run_to_stop(longboat) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    process = longboat.popen("run", "-n", "loop", "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (7, "bye\n")
    assert "longboat: stopping loop; Ctrl-C again kills it" in err
    assert "longboat: loop stopped" in err


def test_ctrl_c_twice_kills(longboat) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    process = longboat.popen("run", "--", "sh", "-c", script)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    while "stopping" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 137
    assert json.loads(longboat("status", "-o", "json").out)["phase"] == "stopped"


def test_the_run_survives_its_terminal(longboat) -> None:
    process = longboat.popen("run", "-n", "long", "--", "sh", "-c", "echo ready; sleep 0.5; echo end")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()
    assert longboat("logs", "-f", "long").out == "ready\nend\n"


def test_flags_and_files_merge(longboat, monkeypatch) -> None:
    longboat.environment.update(ONE="1", TWO="2", COPIED="yes")
    (longboat.folder / "job.yaml").write_text(JOB)
    (longboat.folder / "more.yaml").write_text("name: other\nlabels: {a: b}\n")
    (longboat.folder / "e.env").write_text("FILE=1\n")
    flags = "--procs 2 --env COPIED --env-file e.env --secret TWO --artifact b.txt --label c=d --set retries.count=1"
    done = longboat("run", "job.yaml", "--dry-run", "more.yaml", *flags.split(), "-o", "json")
    job = json.loads(done.out)["job"]
    assert job["name"] == "other"
    assert (job["procs"], job["run"], job["retries"]["count"]) == (2, "python train.py --epochs 1", 1)
    assert job["env"] == {"COPIED": "yes", "FILE": "1"}
    assert list(job["secrets"]) == ["ONE", "TWO"]
    assert job["artifacts"] == ["a.txt", "b.txt"]
    assert job["labels"] == {"a": "b", "c": "d"}


def test_dry_run_prints_the_plan_and_starts_nothing(longboat) -> None:
    done = longboat("run", "--dry-run", "--procs", "2", "train.py")
    assert "# framework none: " in done.out
    assert re.search(r"^worker-0 +127\.\S+ +0-1 +longboat +python train.py$", done.out, re.MULTILINE)
    assert re.search(r"^create +run train ", done.out, re.MULTILINE)
    assert longboat("ps", "-a", "-o", "json").out == "[]\n"


def test_retries_are_reported(longboat) -> None:
    done = longboat("run", "--set", "retries={count: 1, backoff: 0.1s}", "--", "sh", "-c", "echo try; exit 3", code=3)
    assert done.out == "try\ntry\n"
    assert "attempt 2 of 2" in done.err


def test_an_impossible_request_is_refused_at_once(longboat) -> None:
    longboat.environment["LONGBOAT_GPUS"] = "a,b"
    done = longboat("run", "--gpus", "3", "train.py", code=203)
    assert done.out == "" and done.err.startswith("error: ") and "\nhint: " in done.err


def test_a_waiting_run_says_what_it_waits_for(longboat) -> None:
    longboat.environment["LONGBOAT_GPUS"] = "a"
    longboat("run", "-d", "-n", "first", "--gpus", "1", "--", "sleep", "60")
    process = longboat.popen("run", "-n", "second", "--gpus", "1", "--", "true")
    assert process.stderr is not None
    lines = [process.stderr.readline(), process.stderr.readline()]
    assert lines[1].startswith("longboat: second is pending: ")
    longboat("stop", "first")
    process.communicate()
    assert process.returncode == 0


def test_all_mistakes_of_a_job_file_at_once(longboat) -> None:
    (longboat.folder / "job.yaml").write_text("nodse: 2\nrun: true\nprocs: -1\n")
    done = longboat("run", "job.yaml", code=201)
    errors = [line for line in done.err.splitlines() if line.startswith("error: job.yaml:")]
    assert [error.split(":")[2] for error in errors] == ["1", "2", "3"]


def test_a_timeout_has_its_own_code(longboat) -> None:
    longboat("run", "--timeout", "200ms", "--", "sleep", "60", code=RUN_TIMEOUT_EXIT)


def test_resume_takes_a_shortened_run(longboat) -> None:
    script = 'mkdir -p "$LONGBOAT_CHECKPOINT_DIR/step-5"; touch "$LONGBOAT_CHECKPOINT_DIR/step-5/.complete"'
    longboat("run", "-n", "first-of-all", "--", script)
    done = longboat("run", "-q", "--resume", "first", "--", 'basename "$LONGBOAT_RESUME_FROM"')
    assert done.out == "step-5\n"


def test_at_home_a_command_takes_no_code_along(longboat) -> None:
    longboat.environment["HOME"] = str(longboat.folder)
    done = longboat("run", "--", "sh", "-c", "ls train.py 2>/dev/null || echo none")
    assert done.out == "none\n"
    assert "note: no code is copied" in done.err


def test_output_needs_stdout(longboat, tmp_path: Path) -> None:
    assert "-o goes with --detach or --dry-run" in longboat("run", "-o", "json", "--", "true", code=201).err


CLUSTER_JOB = """
name: cluster
queue: research
volumes:
  /mnt/data: {claim: datasets, read_only: true}
  /mnt/out: {claim: results, size: 10Gi}
  /scratch: {scratch: memory}
env: {DATA: /mnt/data}
checkpoints: {to: /mnt/out/checkpoints}
run: |
  cat /mnt/data/a.txt $DATA/a.txt
  echo x > /scratch/x && cp /scratch/x /mnt/out/
  echo $LONGBOAT_CHECKPOINT_DIR
"""


def test_a_job_of_a_cluster_runs_here(longboat, home: Path, tmp_path: Path) -> None:
    (longboat.folder / "job.yaml").write_text(CLUSTER_JOB)
    refused = longboat("run", "job.yaml", code=203).err
    assert (
        "no claim datasets" in refused
        and "hint: name a folder for it: longboat config set local.claims.datasets" in refused
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a\n")
    longboat("config", "set", "local.claims.datasets", str(tmp_path / "data"))
    done = longboat("run", "job.yaml")
    results = home / "claims" / "results"
    assert done.out == f"a\na\n{results}/checkpoints/cluster\n"
    assert (results / "x").read_text() == "x\n"
    for words in ("`queue: research` is not used here", "read_only"):
        assert words in done.err


def test_a_volume_that_is_not_there_is_told_before_anything_starts(longboat) -> None:
    (longboat.folder / "job.yaml").write_text("run: ls data\nvolumes: {data: ./data}\n")
    assert "there is no folder" in longboat("check", "job.yaml").err
    assert "hint: mkdir -p" in longboat("run", "job.yaml", code=203).err


def test_a_run_whose_ranks_did_not_fail_says_why_it_failed_however_quiet(longboat: Longboat) -> None:
    done = longboat("run", "-q", "--timeout", "1s", "--", "sleep", "60", code=207)
    assert "took longer than its timeout of 1 s" in done.err and "longboat explain sleep" in done.err
    assert longboat("run", "-q", "--", "false", code=1).err == "", "what the rank said is all there is to say"


def test_what_stays_behind_is_said_once(longboat: Longboat) -> None:
    (longboat.folder / "data").mkdir()
    (longboat.folder / "data" / "x").touch()
    (longboat.folder / ".longboatignore").write_text("data\n")
    done = longboat("run", "--", "ls", "data", code=2)
    assert done.err.count("data stays behind") == 1, done.err
