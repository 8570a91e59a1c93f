"""The door: start-up cost, help, usage errors, internal errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from longboat.cli.main import MORE, cli, enter

ALLOWED = {"__future__", "longboat", "longboat.cli", "longboat.cli.main"}
"""All of ours that `--help` and `--version` may load. Whatever else is loaded, click brings along by itself."""


def loaded(code: str) -> set[str]:
    script = f"import sys\ntry:\n    {code}\nfinally:\n    print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return set(done.stderr.split())


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_loads_the_table_and_click_and_nothing_else(flag: str) -> None:
    bare = loaded(
        "import click; click.Group('x', params=[click.Option(['--version'], is_flag=True)])"
        f".main([{flag!r}], standalone_mode=False)"
    )
    ours = loaded(f"from longboat.cli.main import main; main([{flag!r}])")
    assert "click" in bare
    assert ours - bare <= ALLOWED
    assert not ours & {"msgspec", "yaml", "json", "longboat.core", "longboat.engines", "longboat.specs", "longboat.sdk"}


def test_every_command_has_a_module_with_the_same_name_and_help() -> None:
    with cli.make_context("longboat", ["ps"]) as ctx:
        for name in cli.table:
            command = cli.get_command(ctx, name)
            assert command is not None and command.name == name
            assert command.help, name


def groups() -> list[str]:
    with cli.make_context("longboat", ["ps"]) as ctx:
        return [name for name in cli.table if isinstance(cli.get_command(ctx, name), click.Group)]


@pytest.mark.parametrize("name", groups())
def test_what_a_group_says_of_its_commands_fits_on_a_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert enter([name, "--help"]) == 0
    listed = capsys.readouterr().out.partition("\nCommands:\n")[2].partition("\nOptions:\n")[0]
    assert listed
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_only_commands_that_take_several_clusters_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    for name, takes_several in {"run": True, "ps": True, "gpus": True, "cost": True, "logs": False}.items():
        assert enter([name, "--help"]) == 0
        assert ("Several: lab,aws,local" in capsys.readouterr().out) is takes_several, name


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert enter(["--version"]) == 0
    assert capsys.readouterr().out == f"longboat {version('longboat')}\n"


def test_no_arguments_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert enter([]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 45
    described, _, names = out.partition("\nMore:\n")
    assert all(f"  {name} " in described for title in cli.sections if title != MORE for name in cli.sections[title])
    assert [name.strip() for name in names.split(",")] == list(cli.sections[MORE])


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["stats"], "no such command: stats", "did you mean longboat status?"),
        (["qqq"], "no such command: qqq", "longboat --help lists the commands"),
        (["config", "get", "engine"], "no such command: get", "longboat config has set, show, unset"),
        (
            ["logs", "r", "--tail", "-1"],
            "--tail: found -1, expected a whole number of at least 0",
            "longboat logs --help",
        ),
        (
            ["logs", "r", "--tail", "x"],
            "--tail: found 'x', expected a whole number of at least 0",
            "longboat logs --help",
        ),
        (
            ["ui", "--port", "99999"],
            "--port: found 99999, expected a whole number from 0 to 65535",
            "longboat ui --help",
        ),
        (["priority", "r", "high"], "n: found 'high', expected a whole number", "longboat priority --help"),
        (["check", "job.yaml", "more"], "more is not a job file", "longboat check job.yaml -- more"),
        (["run", "job.yaml", "more"], "more is not a job file", "longboat run job.yaml -- more"),
        (["ps", "--lable", "x"], "no such option: --lable", "did you mean --label?"),
        (["run", "job.yaml", "--epochs", "3"], "no such option: --epochs", "longboat run job.yaml -- --epochs 3"),
        (["run", "job.yaml", "--node", "3"], "no such option: --node", "did you mean --nodes?"),
        (["run", "job.yaml", "epochs=3"], "epochs=3 is not a job file", "longboat run job.yaml -- epochs=3"),
        (["run", "--in-place", "--include", "x", "a.py"], "--include with --in-place", "leave --include out"),
        (["ps", "-o", "xml"], "'xml' is not one of", "longboat ps --help"),
        (["volume"], "longboat volume needs a command: create, ls, probe, rm", "longboat volume --help"),
        (["cluster", "selftest"], "missing option '--cloud'. Choose from: aws, azure, gcp", "selftest --help"),
        (["cp", "x"], "missing argument 'DESTINATION'", "longboat cp --help"),
        (["run"], "nothing to run", "name a script"),
        (["check"], "nothing to run", "name a script"),
        (["stop"], "name the runs to stop, or --all", "longboat ps"),
        (["wait", "--timeout", "soon"], "not a duration: 'soon'", "write a duration such as"),
    ],
)
def test_usage_errors_have_one_shape(
    args: list[str], error: str, hint: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert enter(args) == 201
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first.startswith("error: ") and error in first
    assert second.startswith("hint: ") and hint in second


def crash(*_args: object) -> None:
    raise ValueError("the bug\nmore of it")


def test_an_internal_error_is_one_line_and_a_file(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cli), "list_commands", crash)
    monkeypatch.setattr(type(cli), "parse_args", crash)
    assert enter(["ps"]) == 200
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: internal error: ValueError: the bug"
    saved = Path(hint.removeprefix("hint: the traceback is in "))
    assert saved.parent == home / "crashes"
    assert "in crash" in saved.read_text()
    assert saved.stat().st_mode & 0o077 == 0


def test_debug_shows_the_traceback(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGBOAT_DEBUG", "1")
    monkeypatch.setattr(type(cli), "parse_args", crash)
    assert enter(["ps"]) == 200
    assert "Traceback" in capsys.readouterr().err
    assert not (home / "crashes").exists()


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(cli), "parse_args", interrupt)
    assert enter(["ps"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "longboat", "schema"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_completion_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert enter(["completion", shell]) == 0
        assert "_LONGBOAT_COMPLETE" in capsys.readouterr().out


def test_completion_of_commands() -> None:
    environment = {**os.environ, "_LONGBOAT_COMPLETE": "bash_complete", "COMP_WORDS": "longboat st", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "longboat"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["plain,status", "plain,stop"]


def test_ctrl_c_while_the_command_line_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[0] = {str(tmp_path)!r}; from longboat.__main__ import main; main()",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_an_interrupt_in_the_middle_of_an_import_comes_after_it(tmp_path: Path) -> None:
    """Raised there it could be swallowed, or leave half a module behind."""
    text = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.1)\ndone = True\n"
    (tmp_path / "interrupting.py").write_text(text)
    code = (
        "import signal, sys, time, longboat.__main__ as entry\n"
        "entry._loading = False\n"
        "signal.signal(signal.SIGINT, entry._interrupted)\n"
        "try:\n    import interrupting\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print(sys.modules['interrupting'].done)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
