"""Host keys against known_hosts files: names as OpenSSH writes them, hashed, with ports; revoked keys, broken lines."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import asyncssh
import pytest

from longboat.clusters.hosts.known_hosts import HostKeyCheck

KEY, OTHER = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
TEXT, OTHER_TEXT = (key.export_public_key().decode().strip() for key in (KEY, OTHER))


def hashed(name: str) -> str:
    salt = b"s" * 20
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def check_of(tmp_path: Path, text: str | None, **options) -> HostKeyCheck:
    file = tmp_path / "known" / "hosts"
    if text is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return HostKeyCheck("web", [file], **options)


@pytest.mark.parametrize(
    ("line", "port", "is_known"),
    [
        ("web.lab KEY", None, True),
        ("other,web.lab KEY", None, True),
        ("*.lab,!old.lab KEY", None, True),
        (f"{hashed('web.lab')} KEY", None, True),
        ("[web.lab]:2222 KEY", 2222, True),
        (f"{hashed('[web.lab]:2222')} KEY", 2222, True),
        ("web.lab KEY", 2222, False),  # another server on the same machine
        ("10.0.0.5 KEY", None, False),  # an address that others had before
        ("# KEY\nbroken\n|1|x|y KEY\nweb.lab KEY", None, True),
        ("web.lab ssh-unheard-of AAAA\nweb.lab KEY", None, True),
    ],
)
def test_keys_that_are_known(tmp_path: Path, line: str, port: int | None, is_known: bool) -> None:
    keys, _, _ = check_of(tmp_path, line.replace("KEY", TEXT) + "\n").match("web.lab", "10.0.0.5", port)
    assert bool(keys) == is_known


def test_an_alias_is_looked_up_without_a_port(tmp_path: Path) -> None:
    keys, _, _ = check_of(tmp_path, f"behind-nat {TEXT}\n", alias="behind-nat").match("web.lab", "", 2222)
    assert keys


def test_revoked_keys_and_authorities(tmp_path: Path) -> None:
    text = f"@revoked * {TEXT}\n@cert-authority *.lab {OTHER_TEXT}\n"
    keys, authorities, revoked = check_of(tmp_path, text).match("web.lab", "", None)
    assert (list(keys), len(authorities), len(revoked)) == ([], 1, 1)


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_key_is_never_taken(tmp_path: Path, accept_new: bool) -> None:
    check = check_of(tmp_path, f"web.lab {OTHER_TEXT}\n", accept_new=accept_new)
    check.match("web.lab", "", None)
    assert not check.validate_host_public_key("web.lab", "", 22, KEY)
    assert check.refused and "web: the host key has changed" in check.refused.message
    assert KEY.get_fingerprint() in check.refused.message


def test_a_new_key_is_recorded_after_the_last_line(tmp_path: Path) -> None:
    check = check_of(tmp_path, f"db.lab {OTHER_TEXT}", accept_new=True)
    check.match("web.lab", "", 2222)
    assert check.validate_host_public_key("web.lab", "", 2222, KEY)
    check.record()
    assert check.files[0].read_text() == f"db.lab {OTHER_TEXT}\n[web.lab]:2222 {TEXT}\n"
    assert check.match("web.lab", "", 2222)[0]


def test_the_file_and_its_folder_are_made_for_the_user_alone(tmp_path: Path) -> None:
    check = check_of(tmp_path, None, accept_new=True)
    check.match("web.lab", "", None)
    check.validate_host_public_key("web.lab", "", 22, KEY)
    check.record()
    file = check.files[0]
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
