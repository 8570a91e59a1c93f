"""Servers that play AWS (ministack, moto) and the checker of CloudFormation templates (cfn-lint), for the tests.

They are installed once into LONGBOAT_TEST_CACHE, as object stores are; `python servers.py` does it beforehand. 190 MB,
most of it schemas of all resources: nothing smaller knows them. moto is 139 MB (botocore, cryptography): ministack has
no machines in Auto Scaling groups.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.storage.realstores import Unavailable, installed, pip_install

if TYPE_CHECKING:
    import pytest

MINISTACK = "ministack==1.5.33"
MOTO = "moto==5.2.5"
FLASK = ("flask==3.1.3", "flask-cors==6.0.5")
MOTO_SERVER = Path(__file__).resolve().parents[2] / "clouds" / "aws" / "moto_server.py"
MINISTACK_SERVER = MOTO_SERVER.with_name("ministack_server.py")
CFN_LINT = "cfn-lint==1.58.0"
GOOGLE = "google-api-python-client==2.202.0"
AZURE = ("azure-mgmt-containerservice==41.8.0", "azure-mgmt-compute==39.0.0")
ARM_SCHEMA = Path(__file__).resolve().parents[2] / "clouds" / "azure" / "arm_schema.py"
STARTING_S = 60.0
ADMIN = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def azure_types() -> Path:
    """An environment with the types of Azure's own client libraries, which are its published description. 47 MB."""
    name = "-".join(AZURE).replace("==", "-")
    return installed(name, lambda folder: pip_install("types of Azure", folder, *AZURE))


@functools.cache
def azure_description(package: str, *bodies: str) -> dict[str, Any]:
    """Operations of one of its interfaces, and schemas of these bodies. Raises Unavailable."""
    command = [azure_types() / "bin" / "python", ARM_SCHEMA, package, *bodies]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    described: dict[str, Any] = json.loads(done.stdout)
    return described


def google_documents() -> Path:
    """The folder with Google's published descriptions of its APIs, out of its client library (a wheel of 17 MB)."""
    folder = installed(
        GOOGLE.replace("==", "-"), lambda folder: pip_install("Google's descriptions", folder, "--no-deps", GOOGLE)
    )
    return next(folder.glob("lib/python*/site-packages/googleapiclient/discovery_cache/documents"))


def programs() -> Path:
    """The folder of the programs. Raises Unavailable."""
    name = f"{MINISTACK}-{CFN_LINT}".replace("==", "-")
    return installed(name, lambda folder: pip_install("ministack and cfn-lint", folder, MINISTACK, CFN_LINT)) / "bin"


def moto_python() -> Path:
    """The Python that has moto. Raises Unavailable."""
    folder = installed(MOTO.replace("==", "-"), lambda folder: pip_install("moto", folder, MOTO, *FLASK))
    return folder / "bin" / "python"


@contextmanager
def moto_server(folder: Path) -> Iterator[str]:
    """moto with our additions (`moto_server.py`); gives its URL."""
    command = [str(moto_python()), str(MOTO_SERVER), str(port := _free_port())]
    with _served(command, _environment(folder), f"http://127.0.0.1:{port}/_longboat/requests", folder):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def aws_server(folder: Path, *, checks_rights: bool = False) -> Iterator[str]:
    """ministack with our additions (`ministack_server.py`); gives its URL.

    `checks_rights`: policies are enforced; the keys of ADMIN may do everything.
    """
    port = _free_port()
    variables = {
        **_environment(folder), "GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1", "LOG_LEVEL": "WARNING", "AUTH": "true" if checks_rights else "false",
        "SERVICES": "cloudformation,ec2,eks,elasticfilesystem,iam,sts,tagging,elasticloadbalancing,autoscaling,ssm",
    }  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with _served([str(programs() / "python"), str(MINISTACK_SERVER)], variables, f"{url}/_ministack/health", folder):
        yield url


def _environment(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: os.environ[key] for key in ("PATH", "TEST_SESSION_OF_LONGBOAT") if key in os.environ}
    return {**kept, **ADMIN, "HOME": str(folder), "TMPDIR": str(folder)}


@contextmanager
def _served(command: list[str], variables: dict[str, str], ready: str, folder: Path) -> Iterator[None]:
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command, env=variables, cwd=folder, stdout=log, stderr=log)
    try:
        _wait(server, ready, folder / "server.log")
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + STARTING_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not start: {log.read_text(errors='replace')[-1000:]}") from None
            time.sleep(0.1)


def use_server(patch: pytest.MonkeyPatch, url: str, folder: Path, keys: dict[str, str]) -> None:
    """Nothing of the machine's own credentials and kubeconfigs is seen."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        patch.delenv(name, raising=False)
    nowhere = str(folder / "none")
    paths = {
        "AWS_CONFIG_FILE": nowhere,
        "AWS_SHARED_CREDENTIALS_FILE": nowhere,
        "KUBECONFIG": str(folder / "kubeconfig"),
    }
    for name, value in {"AWS_ENDPOINT_URL": url, "AWS_EC2_METADATA_DISABLED": "true", **paths, **keys}.items():
        patch.setenv(name, value)
    patch.chdir(folder)


if __name__ == "__main__":
    try:
        programs()
        moto_python()
        azure_types()
        google_documents()
    except Unavailable as reason:
        sys.exit(str(reason))
