"""The job file that `init` writes: what a script tells about itself, commented fields from answers. Pure."""

from __future__ import annotations

import ast
import re
import warnings

from longboat.core.jobs import Framework, Value
from longboat.specs.dump import to_yaml
from longboat.specs.fields.job_fields import JOB
from longboat.specs.fields.scalars import FieldPath
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, from_python

_SAVERS = (
    "torch.save",
    "save_checkpoint",
    "save_state",
    "save_pretrained",
    "save_weights",
    "ModelCheckpoint",
    "CheckpointManager",
    "tf.train.Checkpoint",
    "checkpoint_dir",
)
_RANK_VARIABLES = ("LOCAL_RANK", "WORLD_SIZE")


class ScriptInspection(Value, frozen=True):
    framework: Framework | None = None
    reason: str = ""
    flags: tuple[str, ...] = ()  # options the script takes, as written: "--epochs"
    uses_torchrun: bool = False  # reads LOCAL_RANK or joins a process group of torch
    saves_checkpoints: bool = False
    error: str | None = None  # a syntax error, one line


class InitAnswers(Value, frozen=True):
    name: str
    run: str
    nodes: int = 1
    procs: int | str = 1  # a number or "auto"
    gpus: str = ""  # "2", "H100:8"; empty: none
    framework: Framework | None = None  # None: guessed at every run
    image: str | None = None
    checkpoints: str | None = None
    retries: int = 0


def inspect_script(text: str) -> ScriptInspection:
    """What the imports, calls and texts of a Python script say. A script that does not parse says only that."""
    from longboat.core.frameworks import guess_framework

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as bad:
        line = getattr(bad, "lineno", None)
        where = f"line {line}: " if line else ""
        return ScriptInspection(error=f"{where}{getattr(bad, 'msg', None) or 'not readable as Python'}")
    framework, reason = guess_framework(("python", "script.py"), (), text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [_dotted(call.func) for call in calls]
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    joins = any(name.endswith("init_process_group") for name in names)
    reads_rank = any(variable in texts for variable in _RANK_VARIABLES)
    return ScriptInspection(
        framework=None if framework == "none" else framework,
        reason=reason.replace("script.py", "it", 1),
        flags=_flags(calls, names),
        uses_torchrun=framework == "torch" and (joins or reads_rank),
        saves_checkpoints=any(name == saver or name.endswith("." + saver) for name in names for saver in _SAVERS),
    )


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _flags(calls: list[ast.Call], names: list[str]) -> tuple[str, ...]:
    flags: list[str] = []
    for call, name in zip(calls, names):
        if name.rpartition(".")[2] not in ("add_argument", "option"):
            continue
        words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        long = [word for word in words if re.fullmatch(r"--[A-Za-z0-9][A-Za-z0-9_-]*", word)]
        flags += long[:1]
    return tuple(dict.fromkeys(flags))


def write_job(answers: InitAnswers) -> str:
    """A job file with a comment at every field, and the fields one may want next as comments.

    Raises JobError for answers that no job file can have.
    """
    gpus = _checked_gpus(answers)
    parts = [
        "# A Longboat job file. `longboat check` shows what would run, `longboat run` runs it.\n",
        _entry("name", answers.name, "The runs of this job are called NAME, NAME-2, ..."),
        _entry("run", answers.run, "The command; every process of every node runs it."),
        _entry("nodes", answers.nodes, "Machines. On this machine each becomes a group of processes."),
        _entry("procs", answers.procs, "Processes per node; auto: one per GPU, or 1 without GPUs."),
        _entry("gpus", gpus, "GPUs per node: 2, or H100:8.", given=bool(answers.gpus), example="1"),
        _entry(
            "framework",
            answers.framework,
            "Which variables the processes see: torch, tensorflow, jax, mpi or none. Guessed when absent.",
            example="torch",
        ),
        _entry("image", answers.image, "Container image, for engines that use one.", example="python:3.12"),
        _entry(
            "checkpoints",
            answers.checkpoints and {"to": answers.checkpoints, "keep": 3},
            "Where checkpoints are kept, and how many.",
            example="{to: ./checkpoints, keep: 3}",
        ),
        _entry(
            "retries",
            answers.retries,
            "How often a failed run is started again, from its newest checkpoint.",
            given=answers.retries > 0,
            example="2",
        ),
        _entry("env", None, "Variables, and secrets by name only.", example="{LR: 0.1}"),
        "# secrets: [HF_TOKEN]\n",
    ]
    return "\n".join(parts)


def _checked_gpus(answers: InitAnswers) -> int | str:
    """The GPUs as a job file has them, once all answers are known to be valid."""
    gpus = int(answers.gpus) if answers.gpus.isdecimal() and answers.gpus.isascii() else answers.gpus
    fields = {
        "name": answers.name,
        "run": answers.run,
        "nodes": answers.nodes,
        "procs": answers.procs,
        "gpus": gpus or None,
        "image": answers.image,
        "checkpoints": answers.checkpoints,
        "retries": answers.retries,
    }
    mistakes = Mistakes()
    JOB.read(from_python(fields, place=SourcePosition(), path="", mistakes=mistakes), FieldPath("", mistakes))
    mistakes.raise_if_any()
    return gpus


def _entry(name: str, value: object, comment: str, *, given: bool = True, example: str = "") -> str:
    line = to_yaml({name: value}) if given and value else f"# {name}: {example}\n"
    return f"# {comment}\n{line}"
