"""OpenAPI files out of Go modules: fetched once by a real Go command, from a proxy that is a folder here."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from testbed import build, openapi
from testbed.errors import Missing, TestbedError

VERSION = "1.2.3"
ROOT = f"{openapi.MODULE}@v{VERSION}"
needs_go = pytest.mark.skipif(build.go_program() is None, reason="there is no Go")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Serves one version of the module, whose sum is pinned."""
    folder = tmp_path / "proxy" / openapi.MODULE / "@v"
    folder.mkdir(parents=True)
    (folder / f"v{VERSION}.info").write_text(json.dumps({"Version": f"v{VERSION}"}))
    (folder / f"v{VERSION}.mod").write_text(f"module {openapi.MODULE}\n")
    with zipfile.ZipFile(folder / f"v{VERSION}.zip", "w") as file:
        file.writestr(f"{ROOT}/go.mod", f"module {openapi.MODULE}\n")
        for name in ("api__v1", "apis__batch", "apis__batch__v1", "apis__batch__v2"):
            file.writestr(f"{ROOT}/{openapi.FOLDER}/{name}_openapi.json", json.dumps({"of": name}))
    monkeypatch.setenv("GOPROXY", f"file://{tmp_path / 'proxy'}")
    monkeypatch.setenv("GONOSUMDB", "*")
    monkeypatch.setitem(openapi.SUMS, VERSION, "h1:+imDAIh1v2a9CWCkt7AvK7MTc9XT/ZIqDOapLUJzzQY=")
    return tmp_path / "proxy"


@needs_go
def test_what_a_version_serves_is_kept(proxy: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert openapi.document(VERSION, "batch/v1") == {"of": "apis__batch__v1"}
    monkeypatch.setenv("GOPROXY", "off")
    assert openapi.document(VERSION, "v1") == {"of": "api__v1"}, "it is not fetched twice"
    assert openapi.document(VERSION, "batch/v3") is None
    assert openapi.groups(VERSION) == {"batch": ("v1", "v2")}
    assert [path.name for path in (cache / "openapi").iterdir()] == [VERSION], "nothing else is left"


@needs_go
def test_another_module_than_the_pinned_one_is_refused(proxy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(openapi.SUMS, VERSION, "h1:x")
    with pytest.raises(TestbedError, match="not what was pinned"):
        openapi.folder(VERSION)
    assert not openapi.cached_folder(VERSION).exists()


@needs_go
def test_a_version_that_the_proxy_does_not_have_is_an_error(proxy: Path) -> None:
    with pytest.raises(TestbedError, match="no such file") as caught:
        openapi.folder("1.2.4")
    assert not isinstance(caught.value, Missing)


@needs_go
@pytest.mark.parametrize("address", ["off", "http://127.0.0.1:1"])
def test_a_machine_without_that_network_is_told_in_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", address)
    with pytest.raises(Missing) as caught:
        openapi.folder(openapi.OLDEST)
    assert openapi.OLDEST in str(caught.value) and "\n" not in str(caught.value)


def test_a_machine_without_go_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "go_program", lambda: None)
    with pytest.raises(Missing, match="install Go"):
        openapi.folder(openapi.OLDEST)
