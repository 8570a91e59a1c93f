"""The files of the pages: their weight, what a strict content security policy allows, nothing from elsewhere."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

STATIC = Path(__file__).resolve().parents[2] / "src" / "longboat" / "web" / "static"
WEIGHT = 150_000  # bytes with gzip, everything together: a second on a slow line
HTML_SINKS = re.compile(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function|javascript:")
SERVED = (".css", ".html", ".js", ".svg")


def files(*suffixes: str, vendored: bool = True) -> list[Path]:
    paths = [path for path in sorted(STATIC.rglob("*")) if path.suffix in suffixes]
    return [path for path in paths if vendored or "vendor" not in path.parts]


def test_all_files_together_are_light() -> None:
    weight = sum(len(gzip.compress(path.read_bytes(), 6)) for path in files(*SERVED))
    assert weight <= WEIGHT


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son\w+=", page)
    for source in re.findall(r'(?:src|href)="([^"#][^"]*)"', page):
        assert (STATIC / source.removeprefix("static/")).is_file(), source
    for path in files(".css", ".js", vendored=False):
        assert not re.search(r"https?://|url\((?!#)", path.read_text()), path.name


def test_answers_of_the_server_never_become_html() -> None:
    for path in files(".js", vendored=False):
        text = path.read_text()
        assert not HTML_SINKS.search(text), path.name


def test_what_is_imported_and_drawn_is_there() -> None:
    icons = set(re.findall(r'id="i-([\w-]+)"', (STATIC / "index.html").read_text()))
    for path in files(".js", vendored=False):
        text = path.read_text()
        for target in re.findall(r'(?:from|import\()\s*"(\.[^"]+)"', text):
            assert (path.parent / target).resolve().is_file(), f"{path.name}: {target}"
        for icon in re.findall(r'(?:<\$\{Icon\} name|icon)[=:]\s?"([\w-]+)"', text):
            assert icon in icons, f"{path.name}: {icon}"


def test_vendored_files_say_where_they_are_from_and_under_which_licence() -> None:
    told = (STATIC / "vendor" / "README.md").read_text()
    for path in files(".css", ".js"):
        if "vendor" in path.parts:
            assert f"`{path.name}`" in told
    for package in ("preact", "htm", "uplot"):
        assert (STATIC / "vendor" / f"LICENSE.{package}").read_text().strip()
        assert f"LICENSE.{package}" in told


def test_modules_are_short() -> None:
    for path in files(".css", ".js", vendored=False):
        assert path.read_text().count("\n") <= 400, path.name
