"""Flags in, fields of a job out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longboat.cli.commands.jobs.run import command
from longboat.cli.input.flags import fields_of
from longboat.core.errors import LongboatError

CWD = Path("/work")


def fields(*args: str, environment: dict[str, str] | None = None, cwd: Path = CWD) -> dict[str, Any]:
    with command.make_context("run", [*args, "x.yaml"]) as ctx:
        return fields_of(ctx.params, environment=environment or {}, cwd=cwd)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", {}),
        ("-n a --num-nodes 2 --procs auto", {"name": "a", "nodes": 2, "procs": "auto"}),
        ("--gpus H100:8 --cpus 2 --memory 4Gi", {"gpus": "H100:8", "cpus": 2, "memory": "4Gi"}),
        ("--env A=1 --env B=x=y", {"env": {"A": "1", "B": "x=y"}}),
        ("--env PATH", {"env": {"PATH": "/bin"}}),
        ("--secret TOKEN --secret KEY", {"secrets": ["TOKEN", "KEY"]}),
        ("--workdir src", {"workdir": "/work/src"}),
        ("--checkpoints out", {"checkpoints": {"to": "/work/out"}}),
        ("--checkpoints s3://b/c", {"checkpoints": {"to": "s3://b/c"}}),
        ("--resume digits", {"checkpoints": {"resume": "digits"}}),
        ("--label a=b --label c=", {"labels": {"a": "b", "c": ""}}),
        ("--artifact *.png --queue q --priority 5", {"artifacts": ["*.png"], "queue": "q", "priority": 5}),
        ("--retries 2 --timeout 1h --grace 5s", {"retries": 2, "timeout": "1h", "grace": "5s"}),
        ("--priority 99999999999", {"priority": 99999999999}),
        ("--stall 15m --setup true", {"stall": "15m", "setup": "true"}),
        ("--include *.bin --include x", {"include": ["*.bin", "x"]}),
        (
            "--volume data=./d --volume e=/mnt/e:ro",
            {"volumes": {"data": {"path": "/work/d"}, "e": {"path": "/mnt/e", "read_only": True}}},
        ),
        ("--volume /d=claim:sets:ro", {"volumes": {"/d": {"claim": "sets", "read_only": True}}}),
        ("--volume /d=nfs:nas:/export", {"volumes": {"/d": {"nfs": "nas:/export"}}}),
        (
            "--volume a=scratch --volume b=scratch:memory",
            {"volumes": {"a": {"scratch": True}, "b": {"scratch": "memory"}}},
        ),
        ("--image a/b:c --framework torch", {"image": "a/b:c", "framework": "torch"}),
    ],
)
def test_fields(args: str, expected: dict[str, Any]) -> None:
    assert fields(*args.split(), environment={"PATH": "/bin"}) == expected


def test_env_files_come_before_flags(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# a comment\nA=1\nexport B='two words'\n\nC=\"x # y\"\nHOME\n")
    found = fields("--env", "A=2", "--env-file", ".env", environment={"HOME": "/h"}, cwd=tmp_path)
    assert found["env"] == {"A": "2", "B": "two words", "C": "x # y", "HOME": "/h"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--env =x", "'' is not the name of a variable"),
        ("--env A-B", "'A-B' is not the name of a variable"),
        ("--env NOT_SET", "NOT_SET is not set in this shell"),
        ("--label x", "--label x: expected K=V"),
        ("--volume /data", "--volume /data: expected TARGET=SOURCE"),
        ("--volume ./d:/data", "--volume ./d:/data: expected TARGET=SOURCE"),
        ("--env-file missing", "no such file: /work/missing"),
    ],
)
def test_mistakes(args: str, message: str) -> None:
    with pytest.raises(LongboatError, match=message):
        fields(*args.split())


def test_a_bad_line_of_an_env_file_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("A=1\nnot this\n")
    with pytest.raises(LongboatError, match=r"e:2: expected K=V"):
        fields("--env-file", "e", cwd=tmp_path)


def test_an_env_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(b"A=\xff")
    with pytest.raises(LongboatError, match="e is not UTF-8 text"):
        fields("--env-file", "e", cwd=tmp_path)
    with pytest.raises(LongboatError, match=r"cannot read .*: Is a directory"):
        fields("--env-file", ".", cwd=tmp_path)
