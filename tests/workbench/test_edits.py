"""Edits come back to the user's folder; what he changed himself is never overwritten, and no path leads out of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

from longboat.cli.commands.workbench.opening import bring_back
from longboat.core.errors import EngineError, NotFound
from longboat.workbench import edits as module
from longboat.workbench.edits import Edit, EditsOfRun, decide, is_safe


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


EDIT = Edit(sha256=sha("new"), before=(sha("old"), sha("older")))


@pytest.mark.parametrize(
    ("here", "action"),
    [(None, "write"), (sha("old"), "write"), (sha("older"), "write"), (sha("new"), "nothing"),
     (sha("own"), "keep both"), ("", "keep both")],
)  # fmt: skip
def test_an_older_state_is_replaced_and_ones_own_is_not(here: str | None, action: str) -> None:
    assert decide(EDIT, here) == action


@pytest.mark.parametrize("path", ["a.py", "sub/dir/a.py", ".config", "a b"])
def test_paths_inside(tmp_path: Path, path: str) -> None:
    assert is_safe(path, tmp_path)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/x", "../x", "a/../../x", "a//b", "./a", ".git/hooks/x", "sub/.git/x", "out/x", ".GIT/x", "a\0b",
     "within/x"],
)  # fmt: skip
def test_paths_that_lead_out_or_into_git(tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    (tmp_path / "in" / "within").symlink_to(".")
    assert not is_safe(path, tmp_path / "in")


class Artifacts:
    """An engine, as far as edits need one: what a run put aside is in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.copied: list[str] = []

    def put(self, files: dict[str, tuple[str, list[str]]]) -> None:
        index = {path: {"sha256": sha(text), "before": [sha(each) for each in before]}
                 for path, (text, before) in files.items()}  # fmt: skip
        for path, (text, _) in files.items():
            target = self.folder / "artifacts" / "edits" / "files" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        (self.folder / "artifacts" / "edits" / "edits.json").write_text(json.dumps(index))

    def copy_from(self, run: str, source: str, destination: Path, *, node: str | None = None) -> None:
        if not (self.folder / source).exists():
            raise NotFound(source)
        self.copied.append(source)
        shutil.copy(self.folder / source, destination)


def test_brings_back_only_what_is_new(tmp_path: Path) -> None:
    engine: Any = Artifacts(tmp_path / "run")
    folder = tmp_path / "project"
    folder.mkdir()
    edits, notes = EditsOfRun(engine, "nb", folder), []
    edits.bring_back(notes.append)
    (folder / "a.py").write_text("one")
    (folder / "b.py").write_text("mine")
    engine.put({"a.py": ("two", ["one"]), "b.py": ("theirs", ["first"]), "sub/c": ("c", [])})
    first = edits.bring_back(notes.append)
    assert (first.written, first.beside) == (("a.py", "sub/c"), ("b.py.nb",))
    assert [(folder / name).read_text() for name in ("a.py", "b.py", "b.py.nb", "sub/c")] == [
        "two",
        "mine",
        "theirs",
        "c",
    ]
    assert notes == ["b.py.nb is how the run left it: the file was changed here too"]
    engine.copied.clear()
    assert edits.bring_back(notes.append).written == ()
    assert engine.copied == ["artifacts/edits/edits.json"]


def test_a_file_of_the_users_beside_is_not_overwritten(tmp_path: Path) -> None:
    engine: Any = Artifacts(tmp_path / "run")
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in (("b.py", "mine"), ("b.py.nb", "also mine")):
        (folder / name).write_text(text)
    engine.put({"b.py": ("theirs", ["first"])})
    assert EditsOfRun(engine, "nb", folder).bring_back(print).beside == ("b.py.nb.2",)
    assert EditsOfRun(engine, "nb", folder).bring_back(print).beside == (), "it is there"
    engine.put({"b.py": ("theirs, later", ["first", "theirs"])})
    assert EditsOfRun(engine, "nb", folder).bring_back(print).beside == ("b.py.nb.2",)
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert texts == {"b.py": "mine", "b.py.nb": "also mine", "b.py.nb.2": "theirs, later"}


def test_a_file_that_is_saved_again_meanwhile_comes_the_next_time(tmp_path: Path) -> None:
    engine: Any = Artifacts(tmp_path / "run")
    engine.put({"a.py": ("two", [])})
    (tmp_path / "run" / "artifacts" / "edits" / "files" / "a.py").write_text("three")
    edits = EditsOfRun(engine, "nb", tmp_path)
    first = edits.bring_back(print)
    assert (first.written, first.left) == ((), ("a.py",))
    engine.put({"a.py": ("three", ["two"])})
    assert edits.bring_back(print).written == ("a.py",)


def test_a_damaged_list_is_told(tmp_path: Path) -> None:
    engine: Any = Artifacts(tmp_path / "run")
    engine.put({"a.py": ("two", [])})
    (tmp_path / "run" / "artifacts" / "edits" / "edits.json").write_text("[1]")
    with pytest.raises(EngineError, match="damaged"):
        EditsOfRun(engine, "nb", tmp_path).bring_back(print)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    return Artifacts(tmp_path / "run")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_a_path_that_cannot_be_written_keeps_no_other_from_coming(run: Any, project: Path) -> None:
    run.put({"a/b": ("new", []), "z.py": ("new", [])})
    index = run.folder / module.INDEX
    known = json.loads(index.read_text())
    index.write_text(json.dumps({"n" * 300: known["z.py"], "x\0y": known["z.py"], **known}))
    (project / "a").write_text("mine")
    edits, notes = EditsOfRun(run, "nb", project), []
    result = edits.bring_back(notes.append)
    assert (result.written, result.left) == (("z.py",), ("n" * 300, "x\0y", "a/b"))
    assert [note.split(" is not brought back: ")[1] for note in notes] == [
        "File name too long",
        "its path leads elsewhere",
        "Not a directory",
    ]
    assert edits.bring_back(notes.append).left == result.left
    assert len(notes) == 3  # each is said once
    assert (project / "a").read_text() == "mine"


def test_a_link_of_the_users_is_not_written_through(run: Any, project: Path) -> None:
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / "h").symlink_to(".git/hooks")
    (project / "real").write_text("old")
    (project / "link").symlink_to("real")
    run.put({"h/post-commit": ("new", []), "link": ("new", ["old"])})
    result = EditsOfRun(run, "nb", project).bring_back(print)
    assert (result.left, result.beside) == (("h/post-commit",), ("link.nb",))
    assert list((project / ".git" / "hooks").iterdir()) == []
    assert (project / "real").read_text() == "old"


def test_a_program_stays_one(run: Any, project: Path) -> None:
    (project / "run.sh").write_text("old")
    (project / "run.sh").chmod(0o755)
    run.put({"run.sh": ("new", ["old"])})
    assert EditsOfRun(run, "nb", project).bring_back(print).written == ("run.sh",)
    assert (project / "run.sh").stat().st_mode & 0o777 == 0o755


def test_what_is_too_large_or_no_file_is_left(run: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.put({"big": ("x" * 600, []), "link": ("x", []), "z": ("z", [])})
    (run.folder / module.FILES / "link").unlink()
    (run.folder / module.FILES / "link").symlink_to("/etc/passwd")
    monkeypatch.setattr(module, "LARGEST", 500)
    monkeypatch.setattr(shutil, "copy", lambda source, target: shutil.copy2(source, target, follow_symlinks=False))
    notes: list[str] = []
    assert EditsOfRun(run, "nb", project).bring_back(notes.append).written == ("z",)
    assert [note.split(" is not brought back: ")[0] for note in notes] == ["big", "link"]
    monkeypatch.setattr(module, "LARGEST", 5)
    with pytest.raises(EngineError, match="the list of edits of nb: it is larger than"):
        EditsOfRun(run, "nb", project).bring_back(print)


def test_a_cluster_that_is_away_is_not_asked_for_every_file(run: Any, project: Path) -> None:
    run.put({f"f{number}": ("x", []) for number in range(9)})
    real, asked = run.copy_from, []

    def copy_from(name: str, source: str, destination: Path) -> None:
        asked.append(source)
        if source != module.INDEX:
            raise EngineError("cannot be reached")
        real(name, source, destination)

    run.copy_from = copy_from
    with pytest.raises(EngineError, match="cannot be reached"):
        EditsOfRun(run, "nb", project).bring_back(print)
    assert len(asked) == 1 + module.MOST_TROUBLES


def test_names_do_not_drive_the_terminal(run: Any, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b]0;x\x07"
    run.put({name: ("new", []), f".git/{name}": ("x", [])})
    (project / name).write_text("mine")
    with click.Context(click.Command("x")):
        assert not bring_back(EditsOfRun(run, "nb", project))
    shown = capsys.readouterr().err
    assert "\\x1b]0;x\\x07.nb is how the run left it" in shown
    assert "`longboat cp nb:artifacts/edits .` copies them" in shown
    assert "\x1b]" not in shown
