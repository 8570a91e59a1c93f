"""Patterns mean what git takes them to mean: compared with `git check-ignore` itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.bundles.source.ignore import IgnoreRules, parse

FILES = (
    "a",
    "b.py",
    "ab",
    "abc",
    "a b",
    "b ",
    "!a",
    "#a",
    "-",
    "]",
    "a\\b",
    "A",
    "a.b.c",
    ".a",
    "x/a",
    "x/b.py",
    "x/ab",
    "x/y/a",
    "x/y/b.py",
    "x/y/z/a",
    "x/y/z/abc",
    "y/a",
    "y/x/a",
    "yx/a",
    "ax/y/a",
    "a1/b2/c3",
    "foo/bar",
    "foox/y/bar",
    "foo/x/bar",
    "[a]",
)
FOLDERS = sorted({str(parent) for name in FILES for parent in Path(name).parents if str(parent) != "."})


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ignore")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=git_environment())
    return root


def git_environment() -> dict[str, str]:
    return {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C"}


def ignored_by_git(tree: Path) -> set[str]:
    result = subprocess.run(
        ["git", "-C", str(tree), "-c", "core.ignorecase=false", "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join((*FILES, *FOLDERS)).encode() + b"\0",
        capture_output=True,
        env=git_environment(),
    )
    assert result.returncode in (0, 1), result.stderr
    return set(filter(None, result.stdout.decode().split("\0")))


def ignored_by_us(texts: dict[str, str]) -> set[str]:
    rules = IgnoreRules(lambda folder: parse(texts.get(folder, "")))
    left_out = {name for name in FILES if rules.file(name) is False}
    return left_out | {name for name in FOLDERS if rules.folder(name) is False}


def check(tree: Path, texts: dict[str, str]) -> None:
    for folder in ("", *FOLDERS):
        place = tree / folder / ".gitignore"
        place.unlink(missing_ok=True)
        if folder in texts:
            place.write_bytes(texts[folder].encode())
    assert ignored_by_us(texts) == ignored_by_git(tree), texts


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "/a",
        "a/",
        "x/",
        "/x/y",
        "x/y",
        "*.py",
        "**/a",
        "x/**",
        "x/**/a",
        "**",
        "*",
        "/*",
        "?",
        "[ab]",
        "[!a]",
        "[^a]*",
        "[a-c]*",
        "[]]",
        "[",
        "[a",
        "a\\",
        "\\a",
        "\\!a",
        "\\#a",
        "!a",
        "#a",
        "b\\ ",
        "b ",
        "a b",
        "a\\\\b",
        "[[:alpha:]]",
        "[[:bad:]]",
        "[[:al]",
        "*\n!a",
        "x/*\n!x/y",
        "*\n!*/\n!*.py",
        "/*\n!/x",
        "x\n!x/a",
        "x/\n!x/a",
        "foo**/bar",
        "foo/**bar",
        "x/***/a",
        "**/",
        "/**",
        "x/**/",
        "a\r\nb.py\r",
        "\ufeffa",
        "//a",
        "x//a",
        "/",
        "!",
        "!/",
        "***",
        "**a",
        "x/*/a",
        "*/a",
        "*/*/a",
        "[-]",
        "[a-]",
        "[--]]",
        "[\\]]",
        "[z-a]*",
        "[!]a-]",
        "x/[!y]*",
        "x[/]a",
        "x?a",
        "[[:upper:][:digit:]]*",
        "[[:alpha:]]*[0-9]",
        "!!a",
        "a  \\",
        " a",
    ],
)
def test_one_file_of_patterns(tree: Path, text: str) -> None:
    check(tree, {"": text})


def test_deeper_files_win(tree: Path) -> None:
    check(tree, {"": "a\n*.py\n", "x": "!a\n!*.py\n", "x/y": "/a\nz\n", "foo": "!bar\n"})


pieces = st.sampled_from(
    ["a", "b", "x", "y", "z", "c", ".", "/", "/", "*", "**", "?", "[ab]", "[!a]", "[a-c]", "\\", "1", "py", " ", "!"]
)
lines = st.builds(
    lambda negated, parts: ("!" if negated else "") + "".join(parts), st.booleans(), st.lists(pieces, max_size=6)
)
texts = st.lists(lines, min_size=1, max_size=5).map("\n".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=texts, below=st.none() | texts)
def test_generated_patterns(tree: Path, root: str, below: str | None) -> None:
    check(tree, {"": root} if below is None else {"": root, "x": below})


def test_a_folder_left_out_is_not_entered() -> None:
    entered = []

    def patterns_of(folder: str) -> tuple[object, ...]:
        entered.append(folder)
        return parse("big/\n") if not folder else ()

    rules = IgnoreRules(patterns_of)  # type: ignore[arg-type]
    assert rules.file("big/deep/file") is False
    assert rules.file("small/file") is None
    assert entered == ["", "small"]


def test_very_deep_paths() -> None:
    rules = IgnoreRules.at_root(["q"])
    assert rules.file("/".join("d" * 1900) + "/q") is False


def test_many_stars_do_not_take_for_ever() -> None:
    rules = IgnoreRules.at_root(["*a" * 30 + "*b", "x/" + "*a" * 30 + "*/b", "**/" + "*a" * 20 + "c"])
    assert rules.file("a" * 250) is None
    assert rules.file("x/" + "a" * 250 + "/b") is False


def test_characters_not_bytes() -> None:
    rules = IgnoreRules.at_root(["?.py", "[é].c"])
    assert rules.file("é.py") is False
    assert rules.file("é.c") is False
