"""`import longboat` in a trainer: inside a run, outside of one, with and without an installed Longboat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import longboat
from longboat.launcher import trainer, trainer_rare
from tests.launcher.nodes import Node

Make = Callable[..., Node]

SOURCE = Path(longboat.__file__).parents[1]


def bare_python(tmp_path: Path) -> str:
    """An interpreter that has no Longboat installed."""
    import venv

    venv.create(tmp_path / "bare", symlinks=True)
    return str(tmp_path / "bare" / "bin" / "python")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    told = (*trainer._RANK_VARIABLES, *trainer._SIZE_VARIABLES, *trainer._LOCAL_VARIABLES)
    for name in list(os.environ):
        if name in told or name.startswith("LONGBOAT_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "_stop_seen", False)
    monkeypatch.setattr(trainer, "_next_write", 0.0)
    return tmp_path


def test_outside_of_a_run_everything_is_harmless(outside: Path) -> None:
    longboat.step(1, loss=0.1)
    assert longboat.rank() == 0
    assert longboat.world_size() == 1
    assert longboat.resume_from() is None
    assert longboat.should_stop() is False
    assert longboat.checkpoint_dir() == os.path.join(".", "checkpoints")
    assert (outside / "checkpoints").is_dir()


def test_a_rank_without_longboat_installed(make_node: Make, tmp_path: Path) -> None:
    node = make_node([bare_python(tmp_path), "train.py"], first_rank=2, resume_from="/c/step-1")
    node.script(
        "import longboat\n"
        "print(longboat.__file__, longboat.rank(), longboat.resume_from(), longboat.checkpoint_dir())\n"
        "for n in range(5): longboat.step(n, loss=n / 2)\n"
        "try:\n    longboat.Job\nexcept AttributeError as error: print(error)\n"
        "try:\n    import longboat.cli\nexcept ImportError: print('no cli')\n"
    )
    assert node.run() == 0
    lines = node.log("2.out").decode().splitlines()
    package = node.directory / "python" / "longboat" / "__init__.py"
    assert lines[0] == f"{package} 2 /c/step-1 {node.folder / 'checkpoints'}"
    assert lines[1:] == ["module 'longboat' has no attribute 'Job'", "no cli"]
    assert node.json("steps/2")["step"] == 4
    assert node.json("steps/2")["metrics"] == {"loss": 2.0}
    assert node.json("beat.json")["ranks"]["2"]["step"] == 4


def test_a_rank_with_longboat_installed_keeps_its_modules(make_node: Make) -> None:
    node = make_node([sys.executable, "train.py"])
    node.script(
        "import longboat, longboat.core.jobs\n"
        "from longboat import Job, __version__, step\n"
        f"print(Job is longboat.core.jobs.Job, __version__, longboat.__file__.startswith({str(node.directory)!r}))\n"
    )
    assert node.run() == 0, node.log("0.err")
    assert node.log().decode().split() == ["True", longboat.__version__, "True"]


def test_the_installed_package_gives_the_same_names(tmp_path: Path) -> None:
    for name in longboat._TRAINER:
        assert getattr(longboat, name) is getattr(trainer, name)
    assert longboat.golden is trainer_rare.golden
    with pytest.raises(AttributeError):
        longboat.no_such_name  # noqa: B018
    assert longboat.Job.__name__ == "Job"


def test_importing_longboat_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import longboat; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "['longboat']"


def test_stop_file_and_sigterm(make_node: Make) -> None:
    node = make_node(["python", "train.py"], procs=2)
    node.script(
        "import longboat, os, signal, time\n"
        "if os.environ['RANK'] == '1': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "assert not longboat.should_stop()\nprint('up', flush=True)\n"
        "while not longboat.should_stop(): time.sleep(0.01)\n"
        "print('saved')\n"
    )
    node.start()
    node.until_log("up", "0.out")
    node.until_log("up", "1.out")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert node.log("0.out") == node.log("1.out") == b"up\nsaved\n"


def test_a_script_that_never_asks_still_dies_of_sigterm(make_node: Make) -> None:
    node = make_node(["python", "train.py"])
    node.script("import longboat, time\nlongboat.step(1)\nprint('up', flush=True)\ntime.sleep(1000)\n")
    node.start()
    node.until_log("up")
    node.signal(signal.SIGTERM)
    assert node.wait() == 143


def test_checkpoints_become_visible_when_complete(outside: Path) -> None:
    with longboat.checkpoint(5) as folder:
        (Path(folder) / "inner").mkdir()
        (Path(folder) / "inner" / "model").write_text("weights")
        assert not (outside / "checkpoints" / "step-5").exists()
    final = outside / "checkpoints" / "step-5"
    assert (final / "inner" / "model").read_text() == "weights"
    marker = json.loads((final / ".complete").read_text())
    assert (marker["step"], marker["attempt"]) == (5, 0)
    assert marker["time"] > 0
    assert [entry.name for entry in (outside / "checkpoints").iterdir()] == ["step-5"]


def test_a_checkpoint_that_fails_leaves_nothing_and_the_error_goes_on(outside: Path) -> None:
    with pytest.raises(RuntimeError), longboat.checkpoint(6) as folder:
        (Path(folder) / "model").write_text("half")
        raise RuntimeError("out of disk")
    assert list((outside / "checkpoints").iterdir()) == []


def test_a_checkpoint_again_replaces_the_one_before(outside: Path) -> None:
    for text in ("one", "two"):
        with longboat.checkpoint(7) as folder:
            (Path(folder) / "model").write_text(text)
    assert (outside / "checkpoints" / "step-7" / "model").read_text() == "two"
    assert len(list((outside / "checkpoints").iterdir())) == 1


def test_a_metric_that_is_no_number_is_told(make_node: Make) -> None:
    node = make_node(["python", "train.py"])
    node.script("import longboat\nfor n in range(3): longboat.step(n, loss='low', acc=None, lr=[1, 2], f1=1)\n")
    assert node.run() == 0
    said = sorted(node.log("0.err").decode().splitlines())
    assert said == [f"longboat: a metric is not a number but a {kind}, and is not kept" for kind in ("list", "str")]


def test_only_rank_0_writes_checkpoints(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with longboat.checkpoint(8) as folder:
        (Path(folder) / "model").write_text("same everywhere")
    assert not os.path.exists(folder)
    assert not (outside / "checkpoints" / "step-8").exists()


@pytest.mark.parametrize(
    ("node", "local_rank", "writes"), [("worker-0", "0", True), ("worker-0", "1", False), ("worker-10", "0", False)]
)
def test_the_first_rank_of_a_role_writes_whatever_its_number(
    outside: Path, monkeypatch: pytest.MonkeyPatch, node: str, local_rank: str, writes: bool
) -> None:
    monkeypatch.setenv("LONGBOAT_RANK", "8")
    monkeypatch.setenv("LONGBOAT_NODE", node)
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    with longboat.checkpoint(8):
        pass
    assert (outside / "checkpoints" / "step-8" / ".complete").exists() == writes


def test_a_folder_that_cannot_be_written_does_not_break_the_training(
    outside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (outside / "file").write_text("")
    monkeypatch.setenv("LONGBOAT_CHECKPOINT_DIR", str(outside / "file"))
    monkeypatch.setenv("LONGBOAT_NODE_DIR", "/no/such/folder")
    with longboat.checkpoint(9) as folder:
        (Path(folder) / "model").write_text("x")
    longboat.step(1, loss=object())
    text = capsys.readouterr().err
    assert "no checkpoint of step 9" in text
    assert "step not reported" in text


@pytest.mark.parametrize("number", [-1, 10**18])
def test_a_step_that_no_checkpoint_has_is_told(outside: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    """Its folder would have a name that never counts: nobody would know until a resume finds nothing."""
    for block in (longboat.checkpoint(number), longboat.sharded_checkpoint(number)):
        with block as folder:
            (Path(folder) / "model").write_text("x")
        assert "steps count from 0" in capsys.readouterr().err
    assert not list(outside.glob("checkpoints/*step*"))
    assert trainer.resume_from() is None


def test_a_pipe_among_the_files_is_refused_and_not_waited_for(
    outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with longboat.checkpoint(3) as folder:
        os.mkfifo(f"{folder}/pipe")
    assert "no checkpoint of step 3: " in (said := capsys.readouterr().err) and "/pipe'" in said
    assert not (outside / "checkpoints" / "step-3").exists()


def test_a_killed_process_leaves_no_complete_checkpoint(outside: Path) -> None:
    code = (
        "import os, longboat\n"
        "with longboat.checkpoint(3) as folder:\n"
        "    open(folder + '/model', 'w').close()\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]})
    assert not (outside / "checkpoints" / "step-3").exists()
