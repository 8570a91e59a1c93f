"""`longboat init`: the first job file."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from longboat.cli.input.arguments import PATH
from longboat.cli.input.targets import name_from, starter
from longboat.cli.output.terminal import is_terminal, note, say
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.specs.init_template import InitAnswers, ScriptInspection, inspect_script, write_job

USUAL = ("train.py", "main.py", "run.py")


@click.command("init", short_help="Write a job file.")
@click.argument("script", required=False, type=PATH)
@click.option("-o", "--output", default="job.yaml", show_default=True, type=PATH, help="The file; -: stdout.")
@click.option("--yes", "-y", is_flag=True, help="Ask no questions.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def command(script: str | None, output: str, yes: bool, force: bool) -> None:
    """Write a commented job file for a script, which is read (not run) to see what it needs.

    On a terminal a few questions are asked; each has a default.
    """
    if output != "-" and os.path.lexists(output) and not force:
        raise UsageError(f"{output} exists already", hint="--force overwrites it, -o names another file")
    script = script or next((name for name in USUAL if Path(name).is_file()), None)
    answers = first_answers(script)
    if not yes and is_terminal(sys.stdin) and is_terminal(sys.stderr):
        answers = ask(answers)
    text = write_job(answers)
    if output == "-":
        print(text, end="")
        return
    write_file(Path(output), text)
    say(f"longboat: wrote {output}; next: longboat check {output}, longboat run {output}")


def write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}") from None


def first_answers(script: str | None) -> InitAnswers:
    """Defaults found by reading the script."""
    if script is None:
        return InitAnswers(name=name_from(Path.cwd().name), run="python train.py")
    path = Path(script)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotFound(f"cannot read {script}: {error.strerror}") from None
    inspection = inspect_script(text) if path.suffix == ".py" else ScriptInspection()
    if inspection.error:
        note(f"{script}: {inspection.error}")
    if inspection.framework:
        say(f"longboat: {script} uses {inspection.framework}: {inspection.reason}")
    return InitAnswers(
        name=name_from(path.stem),
        run=shlex.join(["torchrun", script] if inspection.uses_torchrun else starter(path, script)),
        procs="auto",
        framework=None if inspection.uses_torchrun else inspection.framework,
        checkpoints="./checkpoints" if inspection.saves_checkpoints else None,
    )


def ask(answers: InitAnswers) -> InitAnswers:
    """Ask for the job's fields on stderr; invalid answers are asked again."""
    values: dict[str, Any] = {
        "name": click.prompt("Name of the job", default=answers.name, err=True),
        "run": click.prompt("Command", default=answers.run, err=True),
        "nodes": click.prompt("Nodes", default=answers.nodes, type=click.IntRange(min=1), err=True),
        "gpus": click.prompt("GPUs per node (2, H100:8, 0 for none)", default=answers.gpus or "0", err=True),
        "procs": click.prompt("Processes per node (auto: one per GPU)", default=str(answers.procs), err=True),
        "retries": click.prompt("Retries", default=answers.retries, type=click.IntRange(min=0), err=True),
    }
    keeps = click.confirm("Does it save checkpoints?", default=answers.checkpoints is not None, err=True)
    values["checkpoints"] = (answers.checkpoints or "./checkpoints") if keeps else None
    values["gpus"] = "" if values["gpus"] == "0" else values["gpus"]
    values["procs"] = int(values["procs"]) if values["procs"].isdecimal() else values["procs"]
    return msgspec.structs.replace(answers, **values)
