"""Where the home is, and which names are runs."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.engines.shared.home import Home, check_run_id, current_user


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home(environment={}).root == tmp_path / ".longboat"
    assert Home(environment={"LONGBOAT_HOME": "/x/y"}).root == Path("/x/y")
    monkeypatch.chdir(tmp_path)
    assert Home(environment={"LONGBOAT_HOME": "rel"}).root == tmp_path / "rel"


@pytest.mark.parametrize("name", ["a", "a-1", "abc", "a" * 40])
def test_names(name: str) -> None:
    check_run_id(name)


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a-", "a_b", "a.b", "a/b", "..", "a" * 41, "é", "a\n"])
def test_no_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        check_run_id(name)
    if len(name) < 41:
        with pytest.raises(NotFound):
            Home(tmp_path).run_dir(name)


def test_only_runs_are_listed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.run_names() == []
    for name in ("one", ".new-abc", ".gone-abc", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert sorted(home.run_names()) == ["one", "two"]


def test_a_home_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (Home(tmp_path / "file"), Home(tmp_path / "file" / "home")):
        for use in (home.prepare, home.run_names):
            with pytest.raises(EngineError, match="/file is no folder$") as raised:
                use()
            assert raised.value.hint == "set LONGBOAT_HOME to a folder of your own"


def test_the_home_is_the_owners(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    assert home.root.stat().st_mode & 0o777 == 0o700
    assert home.root.stat().st_uid == os.getuid()


def test_the_owner_of_a_run_is_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """People who share an account name themselves; without a name it is the account."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert current_user() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setenv("USER", "lab")
    assert current_user() == "lab"
    monkeypatch.setenv("LOGNAME", "anna")
    assert current_user() == "anna"
