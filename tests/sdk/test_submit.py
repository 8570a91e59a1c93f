"""Python through the SDK, on the real engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from longboat import sdk


@pytest.fixture(autouse=True)
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def text(run: sdk.Run) -> str:
    return b"".join(line.data for line in run.logs()).decode()


def test_a_run_from_fields() -> None:
    run = sdk.run(name="hello", run="echo $WORD; exit 3", env={"WORD": "hi"})
    ended = run.wait(timeout_s=60)
    assert (run.name, ended.phase, run.exit_code, text(run)) == ("hello", "failed", 3, "hi\n")
    assert run.explain().phase == "failed"
    assert sdk.get("hel") == run == sdk.runs()[0]
    run.delete(purge=True)
    with pytest.raises(sdk.NotFound):
        run.status()


def test_a_run_from_a_file_changed_by_fields(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "job.yaml").write_text("name: a\nrun: cat data.txt\n")
    (folder / "sub" / "data.txt").write_text("from the file's folder\n")
    run = sdk.run("sub/job.yaml", name="b")
    run.wait(timeout_s=60)
    assert (run.name, text(run)) == ("b", "from the file's folder\n")


def test_a_run_from_a_job_and_from_a_mapping() -> None:
    job = sdk.job({"name": "x", "run": ["true"]}, nodes=2)
    assert (job.name, job.nodes, job.roles[0].run) == ("x", 2, ("true",))
    assert sdk.run(job).wait(timeout_s=60).phase == "succeeded"
    with pytest.raises(sdk.LongboatError, match="complete"):
        sdk.run(job, nodes=3)


def test_checkpoints_of_a_run(tmp_path: Path) -> None:
    """Written as by any program, without the trainer's functions."""
    save = "d=$LONGBOAT_CHECKPOINT_DIR/step-{0}; mkdir $d && echo {0} > $d/model && touch $d/.complete; "
    run = sdk.run(name="saves", run="".join(save.format(step) for step in (1, 2)))
    assert run.wait(timeout_s=60).phase == "succeeded", text(run)
    assert [(entry.step, entry.complete, entry.newest) for entry in run.checkpoints()] == [
        (1, True, False),
        (2, True, True),
    ]
    assert (run.fetch_checkpoint(tmp_path / "copy", 1) / "model").read_text() == "1\n"
    with pytest.raises(sdk.NotFound, match="promoted"):
        run.fetch_checkpoint(tmp_path / "other", "promoted")


def test_the_same_id_is_the_same_run() -> None:
    first = sdk.run(run="true", run_id="one")
    assert sdk.run(run="true", run_id="one") == first
    with pytest.raises(sdk.LongboatError, match="another job"):
        sdk.run(run="false", run_id="one")
    assert first.wait(timeout_s=60).exit_code == 0


def test_stop_follow_and_timeout() -> None:
    run = sdk.run(name="long", run="echo ready; sleep 600")
    assert next(iter(run.logs(follow=True))).data == b"ready\n"
    with pytest.raises(sdk.WaitTimeout):
        run.wait(timeout_s=0.05)
    run.stop(grace_s=5)
    assert run.wait(timeout_s=60).phase == "stopped"


def test_mistakes_are_named_all_at_once() -> None:
    with pytest.raises(sdk.JobError) as caught:
        sdk.job(run="true", nodse=2, procs=-1)
    assert len(caught.value.problems) == 2


def test_no_such_engine() -> None:
    with pytest.raises(sdk.LongboatError, match="no engine named 'moon'"):
        sdk.engine("moon")


def test_every_name_is_there_and_none_is_loaded_early() -> None:
    code = (
        "import sys, longboat.sdk as sdk; assert not {'msgspec', 'yaml'} & set(sys.modules);"
        "assert all(callable(getattr(sdk, name)) for name in sdk.__all__);"
        "assert set(dir(sdk)) == set(sdk.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_problems_are_readable() -> None:
    """A place, the reason, a hint; no frames of ours but the one that was called, no error behind the error."""
    code = "import longboat\nlongboat.run(nodse=2, run='x', procs=-1)\n"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 1
    assert "nodse: unknown field" in answer.stderr and "procs: " in answer.stderr
    assert answer.stderr.count("File ") == 2 and "During handling" not in answer.stderr
    with pytest.raises(sdk.NotFound, match=r"no run named 'nothing'(.|\n)*hint: "):
        sdk.get("nothing")


def test_names_complete() -> None:
    import longboat

    assert {"run", "job", "get", "step", "checkpoint", "Run", "__version__"} <= set(dir(longboat))
    assert all(hasattr(longboat, name) for name in dir(longboat))
    assert {"cp", "exec", "logs", "wait"} <= set(dir(sdk.Run))


def test_files_and_commands_of_a_run(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = sdk.run(name="held", run="echo 42 > result.txt; echo ready; sleep 60")
    next(iter(run.logs(follow=True)))
    run.cp(":result.txt", tmp_path / "copy.txt")
    assert (tmp_path / "copy.txt").read_text() == "42\n"
    (folder / "given.txt").write_text("7\n")
    run.cp("given.txt", ":deep/given.txt")
    assert run.exec(["cat", "deep/given.txt"]) == 0 and capfd.readouterr().out == "7\n"
    for source, target in ((":a", ":b"), ("a", "b")):
        with pytest.raises(sdk.LongboatError, match="colon"):
            run.cp(source, target)
    with pytest.raises(sdk.NotFound, match="no such file"):
        run.cp("missing", ":x")
    run.stop(grace_s=0)
    run.wait(timeout_s=60)
