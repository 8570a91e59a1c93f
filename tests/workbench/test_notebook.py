"""`longboat notebook` with the real JupyterLab on this machine: a token, the folder itself, one and the same again."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from longboat.engines.local.engine import LocalEngine
from longboat.workbench.sessions import read_session
from tests.workbench.conftest import Longboat, fetch


@pytest.mark.frameworks
def test_opens_in_the_folder_with_a_token_and_ends_without_a_trace(
    longboat: Longboat, programs: Path, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "project" / "model.py").write_text("width = 3\n")
    before = set(home.rglob("*"))
    opened = longboat("notebook", "-d")
    assert (opened.returncode, opened.stdout) == (0, "notebook\n"), opened.stderr
    engine = LocalEngine(home)
    session = read_session(engine, engine.status("notebook"))
    assert session is not None
    url = session.url(session.port)
    assert parse_qs(urlsplit(url).query) == {"token": [session.token]}
    api = f"http://127.0.0.1:{session.port}/api"
    listed = json.loads(fetch(f"{api}/contents", token=session.token))
    assert {entry["name"] for entry in listed["content"]} == {"model.py", "first-steps.ipynb"}
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(f"{api}/contents")
    # The token is nowhere but in the session's own folder, which nobody else can enter.
    found = [path for path in home.rglob("*") if path.is_file() and session.token.encode() in path.read_bytes()]
    assert {path.relative_to(home / "runs" / "notebook").parts[3] for path in found} == {"workbench"}
    again = longboat("notebook", "-d")
    assert (again.stdout, "is open already" in again.stderr) == ("notebook\n", True)
    assert longboat("stop", "notebook").returncode == 0
    with pytest.raises(OSError):
        fetch(f"{api}/status")
    assert longboat("rm", "notebook").returncode == 0
    left = {path for path in home.rglob("*") if path.is_file()} - before
    assert not [path for path in left if "notebook" in str(path) or "workbench" in str(path)]


@pytest.mark.frameworks
def test_an_unused_one_gives_its_place_back(longboat: Longboat, programs: Path) -> None:
    opened = longboat("notebook", "--no-browser", "--idle", "5s")
    assert opened.returncode == 0, opened.stderr
    assert opened.stdout.startswith("http://127.0.0.1:")
    assert "notebook succeeded" in opened.stderr


def test_an_environment_without_jupyter_says_what_to_install(
    longboat: Longboat, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = longboat("notebook", "--no-browser")
    if opened.stdout:
        pytest.skip("this machine has JupyterLab")
    assert opened.returncode == 205
    assert "JupyterLab is not installed here: the package is `jupyterlab`" in opened.stderr
    assert "--setup 'pip install jupyterlab'" in opened.stderr
