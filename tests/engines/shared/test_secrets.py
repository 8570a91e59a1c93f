"""Secrets by name: where they are looked for, and what is said when they are nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import EngineError, NotFound, SecretMissing, UsageError
from longboat.core.jobs import Secret
from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import list_secrets, read_secrets, readable_secrets, remove_secret, set_secret


@pytest.fixture
def store(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    set_secret(home, "STORED", "from store\n")
    return home


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        (Secret(name="TOKEN"), "from env"),
        (Secret(name="T", env="TOKEN"), "from env"),
        (Secret(name="STORED"), "from store\n"),
        (Secret(name="T", store="STORED"), "from store\n"),
        (Secret(name="BOTH"), "env first"),
        (Secret(name="BOTH", store="STORED"), "from store\n"),
        (Secret(name="EMPTY"), ""),
    ],
)
def test_where_a_secret_is_found(store: Home, secret: Secret, expected: str) -> None:
    set_secret(store, "BOTH", "store second")
    environment = {"TOKEN": "from env", "BOTH": "env first", "EMPTY": ""}
    assert read_secrets(store, [secret], environment) == {secret.name: expected}


def test_a_secret_is_read_from_a_file(store: Home, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("in a file\n")
    assert read_secrets(store, [Secret(name="T", file=str(tmp_path / "token"))], {}) == {"T": "in a file"}
    for bad in (tmp_path / "nothing", tmp_path):
        with pytest.raises(EngineError, match="cannot read"):
            read_secrets(store, [Secret(name="T", file=str(bad))], {"T": "not asked"})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    with pytest.raises(EngineError):
        read_secrets(store, [Secret(name="T", file=str(tmp_path / "binary"))], {})


@pytest.mark.parametrize("secret", [Secret(name="GONE"), Secret(name="T", env="GONE"), Secret(name="T", store="GONE")])
def test_nowhere(store: Home, secret: Secret) -> None:
    with pytest.raises(SecretMissing) as caught:
        read_secrets(store, [secret], {"OTHER": "value-of-other"})
    assert secret.name in caught.value.message and "GONE" in (caught.value.hint or "")
    assert caught.value.exit_code == 202
    assert "value-of-other" not in f"{caught.value.message}{caught.value.hint}"


def test_a_missing_secret_does_not_hide_the_others(store: Home) -> None:
    told: list[str] = []
    secrets = [Secret(name="GONE"), Secret(name="HERE"), Secret(name="ODD", store="no name")]
    assert readable_secrets(store, secrets, {"HERE": "x"}, told.append) == {"HERE": "x"}
    assert len(told) == 2 and "GONE" in told[0]


def test_the_secret_store_is_private_and_lists_names(store: Home) -> None:
    set_secret(store, "SECOND", "x")
    assert list_secrets(store) == ["SECOND", "STORED"]
    path = store.root / "secrets" / "STORED"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    remove_secret(store, "SECOND")
    assert list_secrets(store) == ["STORED"]
    with pytest.raises(NotFound):
        remove_secret(store, "SECOND")


@pytest.mark.parametrize("name", ["", "../x", "A B", "a/b", ".x", "1A", "A\n"])
def test_no_names_for_secrets(store: Home, name: str) -> None:
    with pytest.raises(UsageError):
        set_secret(store, name, "x")
    with pytest.raises(UsageError):
        remove_secret(store, name)
