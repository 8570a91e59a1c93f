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


@contextmanager
def signed_in(browser: Any, address: str) -> Iterator[Any]:
    """A page of a reader's own. No error and nothing that the content security policy stops may happen in it."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if "Security Policy" in message.text else None)
    page.goto(address)
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    yield page
    context.close()
    assert troubles == [], troubles


def open_page(page: Any, path: str) -> None:
    page.evaluate("path => { location.hash = `#/${path}` }", path)


def row_of(page: Any, name: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


if __name__ == "__main__":
    try:
        chromium()
        playwright()
        axe()
    except Unavailable as reason:
        sys.exit(str(reason))
