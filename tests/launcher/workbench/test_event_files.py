"""Event files of runs become one folder, by the runs' names; which runs is chosen by name or label."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from longboat.launcher.workbench.event_files import chosen, curve_name, has_labels, link, roots_of


def make_run(runs: Path, name: str, labels: dict[str, str] | None = None) -> Path:
    """A run as the embedded engine keeps it; its working copy."""
    node = runs / name / "attempts" / "0" / "worker-0"
    work = node / "work"
    work.mkdir(parents=True)
    (node / "plan.json").write_text(json.dumps({"workdir": str(work), "artifacts_dir": str(runs / name / "artifacts")}))
    (runs / name / "record.json").write_text(json.dumps({"job": {"labels": labels or {}}}))
    (runs / name / "artifacts").mkdir()
    return work


def write_events(folder: Path, name: str = "events.out.tfevents.1.host") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x")
    return folder / name


def links(target: Path) -> dict[str, str]:
    return {str(path.relative_to(target)): os.readlink(path) for path in sorted(target.rglob("*")) if path.is_symlink()}


def test_links_by_run_and_follows_what_comes_and_goes(tmp_path: Path) -> None:
    runs, target = tmp_path / "runs", tmp_path / "logs"
    target.mkdir()
    work = make_run(runs, "cnn")
    first = write_events(work / "logs" / "train")
    saved = write_events(runs / "cnn" / "artifacts", "events.out.tfevents.2.host")
    write_events(work / ".git" / "hidden")
    assert link(str(target), [("cnn", str(runs / "cnn"))]) == 2
    assert links(target) == {f"cnn/train/{first.name}": str(first), f"cnn/{saved.name}": str(saved)}
    saved.unlink()
    later = write_events(work / "runs" / "Nov16")
    link(str(target), [("cnn", str(runs / "cnn"))])
    assert links(target) == {f"cnn/train/{first.name}": str(first), f"cnn/Nov16/{later.name}": str(later)}


def test_a_run_without_anything_yet_has_no_roots(tmp_path: Path) -> None:
    assert roots_of(str(tmp_path / "nothing")) == []
    assert chosen(str(tmp_path / "nothing"), [], []) == []


def test_a_link_out_of_the_working_copy_is_not_followed(tmp_path: Path) -> None:
    write_events(tmp_path / "data" / "of-others")
    work = make_run(tmp_path / "runs", "cnn")
    (work / "data").symlink_to(tmp_path / "data")
    target = tmp_path / "logs"
    target.mkdir()
    assert link(str(target), [("cnn", str(tmp_path / "runs" / "cnn"))]) == 0


def test_what_is_no_file_is_not_given_to_tensorboard(tmp_path: Path) -> None:
    work = make_run(tmp_path / "runs", "cnn")
    os.mkfifo(work / "pipe.tfevents")
    (work / "loop.tfevents").symlink_to("loop.tfevents")
    target = tmp_path / "logs"
    target.mkdir()
    assert link(str(target), [("cnn", str(tmp_path / "runs" / "cnn"))]) == 0


def test_runs_are_chosen_by_name_by_label_or_all(tmp_path: Path) -> None:
    make_run(tmp_path, "one", {"sweep": "lr"})
    make_run(tmp_path, "two", {"sweep": "lr", "best": "yes"})
    make_run(tmp_path, "three")
    (tmp_path / ".new-1").mkdir()

    def names(runs: list[str], labels: list[str]) -> list[str]:
        return [name for name, _ in chosen(str(tmp_path), runs, labels)]

    assert names([], []) == ["one", "three", "two"]
    assert names([], ["sweep=lr"]) == ["one", "two"]
    assert names(["cnn=cnn-0a1b2c3d"], []) == ["cnn"]
    assert chosen("/r", ["cnn=cnn-0a1b2c3d"], []) == [("cnn", "/r/cnn-0a1b2c3d")]


@pytest.mark.parametrize(
    ("terms", "is_meant"),
    [(["a"], True), (["!a"], False), (["!b"], True), (["a=1"], True), (["a==1"], True), (["a=2"], False),
     (["a!=1"], False), (["b!=1"], True), (["a=1", "b"], False)],
)  # fmt: skip
def test_terms_of_a_label_selector(terms: list[str], is_meant: bool) -> None:
    assert has_labels({"a": "1"}, terms) is is_meant


def test_usual_folders_say_nothing_in_a_curves_name() -> None:
    assert curve_name("cnn", ".") == "cnn"
    assert curve_name("cnn", "lightning_logs/version_0") == "cnn/version_0"
    assert curve_name("cnn", "out/logs") == "cnn/out/logs"
