"""Debian's chromium driven by playwright, and axe, the checker of accessibility: installed once, opened for tests.

playwright (53 MB) and axe-core lie in LONGBOAT_TEST_CACHE, as object stores do; `python browser.py` installs them
beforehand. The browser itself is a package of the system (tests/apt-packages.txt).
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.storage.realstores import Unavailable, installed, npm_install, pip_install

PLAYWRIGHT = "playwright==1.65.0"
AXE = "axe-core@4.14.0"
PROGRAMS = ("chromium", "chromium-headless-shell", "google-chrome")
PATIENCE_MS = 60_000.0
"""How long a page may take for what it should do at once: the machine may be busy with twenty other things."""


def chromium() -> str:
    for name in PROGRAMS:
        program = shutil.which(name)
        if program:
            return program
    raise Unavailable("chromium is not installed: apt-get install chromium")


def playwright() -> Path:
    return installed(PLAYWRIGHT.replace("==", "-"), lambda folder: pip_install("playwright", folder, PLAYWRIGHT))


def axe() -> str:
    """The text of axe's script."""
    folder = installed(AXE.replace("@", "-"), lambda folder: npm_install("axe-core", folder, AXE))
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@contextmanager
def opened_browser() -> Iterator[Any]:
    """A browser without a window (playwright's `Browser`). Raises Unavailable."""
    program = chromium()
    packages = next(playwright().glob("lib/python*/site-packages"))
    sys.path.append(str(packages))  # the environment was made by this interpreter
    try:
        api = importlib.import_module("playwright.sync_api")
    finally:
        sys.path.remove(str(packages))
    with api.sync_playwright() as driver:
        # As root there is no sandbox; /dev/shm of a container is too small.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__":
    try:
        chromium()
        playwright()
        axe()
    except Unavailable as reason:
        sys.exit(str(reason))
