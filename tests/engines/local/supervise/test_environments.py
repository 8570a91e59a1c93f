"""The virtual environment that `setup` installs into: made once, named by content, seeing its parent's packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.supervise.environments import prepare_environment, settle_environment
from longboat.engines.shared.home import Home
from tests.engines.local.conftest import LocalJobs


@pytest.mark.parametrize("setup", [None, "echo hello", "make data"])
def test_no_environment_is_made_for_nothing(tmp_path: Path, setup: str | None) -> None:
    environment = prepare_environment(Home(tmp_path), setup, None, path="/usr/bin:/bin")
    assert (environment.setup, environment.path, environment.lock) == (setup, (), None)
    assert list(tmp_path.iterdir()) == []


def test_no_python(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no"):
        prepare_environment(Home(tmp_path), "pip install x", None, path=str(tmp_path))


def test_an_environment_that_was_never_marked_is_made_anew_after_a_restart(tmp_path: Path) -> None:
    """Nothing of it was synced: its files may be empty. One that is marked was."""
    home, path = Home(tmp_path), "/usr/bin:/bin"
    made = prepare_environment(home, "pip install x", None, path=path)
    folder = Path(made.variables["VIRTUAL_ENV"])
    (folder / "installed").write_text("")
    prepare_environment(home, "pip install x", None, path=path)
    assert (folder / "installed").exists(), "within one boot it is used again"
    (folder / "made-in-boot").write_text("another")
    assert made.marker is not None
    settle_environment(Path(made.marker))
    assert prepare_environment(home, "pip install x", None, path=path).setup is None
    assert (folder / "installed").exists(), "what is marked is whole"
    Path(made.marker).unlink()
    prepare_environment(home, "pip install x", None, path=path)
    assert not (folder / "installed").exists()


def wheel(folder: Path, name: str, version: str) -> None:
    """A package made by hand: no network, no build tools."""
    import zipfile

    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_a_package_of_setup_is_there_and_is_installed_once(local: LocalJobs, tmp_path: Path) -> None:
    wheel(tmp_path, "quux_demo", "1.5")
    setup = f"pip install --no-index --no-deps {tmp_path}/quux_demo-1.5-py3-none-any.whl"
    code = "import quux_demo, sys, numpy; print(quux_demo.version, sys.prefix)"
    first = local.run(code, name="first", setup=setup, nodes=2)
    assert first.phase == "succeeded", local.engine.explain("first").lines
    lines = [line.split() for line in local.text("first").splitlines()]
    assert [line[0] for line in lines] == ["1.5", "1.5"] and "environments" in lines[0][1]
    second = local.run(code, name="second", setup=setup)
    assert second.phase == "succeeded"
    assert not list(local.files("second").directory.glob("attempts/0/*/logs/setup.out"))
    outside = local.run("import quux_demo", name="outside")
    assert outside.phase == "failed"
