from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.core.errors import EngineError, Refused
from longboat.storage.download import Transfer, check_url, fetch, file_name, redacted
from tests.storage.servers import Site, serving

QUICK = Transfer(timeout_s=5.0, attempts=3, backoff_s=0.01)
DATA = os.urandom(300_000)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as one:
        one.files["/x.bin"] = DATA
        yield one


def test_a_plain_download(tmp_path: Path, site: Site) -> None:
    seen: list[tuple[int, int | None]] = []
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK, progress=lambda done, total: seen.append((done, total)))
    assert (tmp_path / "x").read_bytes() == DATA
    assert seen[-1] == (len(DATA), len(DATA))
    assert seen == sorted(seen)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_broken_connection_is_resumed(tmp_path: Path, site: Site) -> None:
    site.breaks = [100_000, 50_000, 1, 0]
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)
    assert (tmp_path / "x").read_bytes() == DATA
    expected = [None, "bytes=100000-", "bytes=150000-", "bytes=150001-", "bytes=150001-"]
    assert site.ranges == expected


def test_a_server_that_cannot_resume_starts_again(tmp_path: Path, site: Site) -> None:
    site.resumes = False
    site.breaks = [100_000]
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)
    assert (tmp_path / "x").read_bytes() == DATA
    assert site.ranges == [None, None]


def test_a_later_call_carries_on(tmp_path: Path, site: Site) -> None:
    site.breaks = [200_000]
    with pytest.raises(EngineError, match="broke off after 200,000 of 300,000 bytes"):
        fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=Transfer(attempts=1))
    site.breaks = []
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)
    assert (tmp_path / "x").read_bytes() == DATA
    assert site.ranges[-1] == "bytes=200000-"


def test_content_that_changed_in_between_is_not_mixed(tmp_path: Path, site: Site) -> None:
    site.breaks = [200_000]
    with pytest.raises(EngineError):
        fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=Transfer(attempts=1))
    for new in (b"new" * 90_000, b"short"):
        site.files["/x.bin"] = new
        fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)
        assert (tmp_path / "x").read_bytes() == new


def test_a_part_that_is_whole_already_starts_again(tmp_path: Path, site: Site) -> None:
    site.tells_length = False
    site.breaks = [200_000]
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)  # without a length, a break is not to be seen
    site.tells_length = True
    site.breaks = [len(DATA) - 1]
    (tmp_path / "x").unlink()
    with pytest.raises(EngineError):
        fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=Transfer(attempts=1))
    with (tmp_path / "x").open("ab") as file:
        file.write(b"12")
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)
    assert (tmp_path / "x").read_bytes() == DATA


def test_busy_servers_are_asked_again_and_others_not(tmp_path: Path, site: Site) -> None:
    site.answers = [503, 429]
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)
    assert len(site.requests) == 3
    site.requests.clear()
    with pytest.raises(EngineError, match="404"):
        fetch(f"{site.url}/missing", f"{tmp_path}/y", transfer=QUICK)
    assert len(site.requests) == 1
    site.requests.clear()
    site.answers = [500] * 3
    with pytest.raises(EngineError, match="500"):
        fetch(f"{site.url}/x.bin", f"{tmp_path}/z", transfer=QUICK)
    assert len(site.requests) == 3


def test_a_refused_connection_is_an_engine_error(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with pytest.raises(EngineError, match="cannot be fetched: Connection refused$"):
        fetch(f"http://127.0.0.1:{port}/x", f"{tmp_path}/x", transfer=QUICK)


def test_somebody_who_never_answers(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        url = f"http://127.0.0.1:{one.getsockname()[1]}/x"
        with pytest.raises(EngineError, match=r"no answer for 0\.1 s"):
            fetch(url, f"{tmp_path}/x", transfer=Transfer(timeout_s=0.1, attempts=2, backoff_s=0.01))


def test_redirects_lead_only_to_the_web(tmp_path: Path, site: Site) -> None:
    site.redirects = {"/a": "/x.bin", "/b": f"file://{tmp_path}/secret", "/c": "ftp://127.0.0.1/x", "/d": "/d"}
    (tmp_path / "secret").write_text("mine")
    fetch(f"{site.url}/a", f"{tmp_path}/a", transfer=QUICK)
    assert (tmp_path / "a").read_bytes() == DATA
    for path in ("/b", "/c", "/d"):
        with pytest.raises(EngineError):
            fetch(f"{site.url}{path}", f"{tmp_path}/out", transfer=QUICK)
    assert not (tmp_path / "out").exists()


def test_user_and_password_are_sent_but_never_shown(tmp_path: Path, site: Site) -> None:
    site.login = "Basic " + base64.b64encode(b"me:p@ss").decode()
    url = site.url.replace("http://", "http://me:p%40ss@") + "/x.bin?token=hush"
    fetch(url, f"{tmp_path}/x", transfer=QUICK)
    assert (tmp_path / "x").read_bytes() == DATA
    site.login = "other"
    with pytest.raises(EngineError) as caught:
        fetch(url, f"{tmp_path}/y", transfer=QUICK)
    assert f"{site.url}/x.bin" in caught.value.message
    for secret in ("p%40ss", "p@ss", "hush", "me:"):
        assert secret not in f"{caught.value.message} {caught.value.hint}"


def test_a_password_does_not_follow_a_redirect(tmp_path: Path, site: Site) -> None:
    with serving() as other:
        other.files["/x"] = b"data"
        site.redirects = {"/x": f"{other.url}/x"}
        fetch(site.url.replace("http://", "http://me:word@") + "/x", f"{tmp_path}/x", transfer=QUICK)
        assert "authorization" in site.requests[0][1]
        assert "authorization" not in other.requests[0][1]


def test_odd_characters_in_a_url(tmp_path: Path, site: Site) -> None:
    site.files["/d%C3%A4ta/a%20b.bin"] = b"odd"
    for name in ("/däta/a%20b.bin", "/d%C3%A4ta/a%20b.bin"):
        fetch(site.url + name, f"{tmp_path}/x", transfer=QUICK)
        assert (tmp_path / "x").read_bytes() == b"odd"


def test_a_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(DATA)
    for url in (f"file://{tmp_path}/a%20b", f"file://localhost{tmp_path}/a%20b"):
        fetch(url, f"{tmp_path}/x")
        assert (tmp_path / "x").read_bytes() == DATA
    for url in (f"file://{tmp_path}/none", f"file://{tmp_path}"):
        with pytest.raises(EngineError):
            fetch(url, f"{tmp_path}/y")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "/etc/passwd",
        "s3://b/x",
        "s3:///x",
        "s3://bucket/x?versionId=1",
        "s3://key:secret@bucket/x",
        "gs://bucket/%ff",
        "ftp://h/x",
        "http://",
        "http:///x",
        "http://h:99999/x",
        "http://h/a b",
        "file://other/x",
        "http://[::1",
        "data:text/plain,x",
        "http://h/a\nb",
    ],
)
def test_urls_that_can_never_work(url: str) -> None:
    with pytest.raises(Refused):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a/b.tar.gz?x=1#y", "b.tar.gz"),
        ("https://h/a/", "a"),
        ("https://h", "data"),
        ("https://h/..", "data"),
        ("https://h/%2e%2e", "data"),
        ("https://h/a%2Fb", "b"),
        ("https://h/a%0Ab", "data"),
        ("https://h/" + "x" * 300, "data"),
    ],
)
def test_the_name_of_a_download(url: str, name: str) -> None:
    assert file_name(url) == name


def test_what_is_shown_of_a_url() -> None:
    assert redacted("https://me:pw@h:8/x?sig=1#f") == "https://h:8/x"


def test_after_a_restart_only_what_was_synced_is_carried_on_with(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had arrived and was not on the disk may be anything: here it is zeros."""
    import json

    from longboat.storage import transfers

    monkeypatch.setattr(transfers, "SYNC_BYTES", 64_000)
    # A tick below what arrives in one read at most, so that some of it is synced and some is not.
    site.breaks = [200_000]
    with pytest.raises(EngineError):
        fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=Transfer(attempts=1))
    notes = json.loads((tmp_path / "x.notes").read_text())
    synced = notes["synced"]
    assert 0 <= synced <= 200_000
    (tmp_path / "x.notes").write_text(json.dumps({**notes, "boot": "another"}))
    lost = DATA[:synced] + bytes(200_000 - synced)
    (tmp_path / "x").write_bytes(lost)
    site.breaks = []
    fetch(f"{site.url}/x.bin", f"{tmp_path}/x", transfer=QUICK)
    assert (tmp_path / "x").read_bytes() == DATA
    assert site.ranges[-1] == (f"bytes={synced}-" if synced else None)
