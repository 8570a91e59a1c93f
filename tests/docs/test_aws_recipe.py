"""The recipe of a CNN on AWS: its cluster against ministack, a server that plays AWS; data and runs on real pods.

EFS cannot be mounted here: a folder of the node stands in for it, and `volume create --efs` has tests of its own.
"""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.cli.main import enter
from testbed import network
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.clusters.cloud import servers
from tests.docs.test_examples import FILE_NAME, ROOT, blocks, cluster_environment, give_image, run_block
from tests.storage.realstores import Unavailable

PAGE = ROOT / "docs" / "recipes" / "aws-efs-cnn.md"
CONSOLE = [text for kind, text in blocks(PAGE) if kind == "console"]


def write_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for _, text in blocks(PAGE):
        if name := FILE_NAME.match(text):
            (folder / name[1]).write_text(text)


@pytest.fixture
def aws_url(tmp_path: Path) -> Iterator[str]:
    try:
        servers.programs()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with servers.aws_server(tmp_path / "aws") as url:
        yield url


@pytest.mark.clouds
@pytest.mark.soak
def test_the_cluster_on_a_server_that_plays_aws(
    aws_url: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    write_files(folder)
    servers.use_server(monkeypatch, aws_url, folder, servers.ADMIN)
    environment = dict(os.environ)
    run_block(CONSOLE[0], folder, environment)
    with open(folder / "cluster.yaml", "a") as file:
        file.write("addons: []\n")  # no API server answers there
    for words in (["up"], ["status"], ["down", "--yes"]):
        assert enter(["cluster", *words]) == 0, words


@pytest.fixture
def data_url(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The data over HTTP, where pods reach it."""
    site = tmp_path / "site"
    site.mkdir()
    with tarfile.open(site / "digits.tar.gz", "w:gz") as tar:
        tar.add(ROOT / "examples" / "digits" / "digits.npz", "digits.npz")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    address = network.gateway_address(cluster, 0)
    server = http.server.ThreadingHTTPServer((address, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{address}:{server.server_port}/digits.tar.gz"
    server.shutdown()


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.soak
def test_data_and_runs_on_real_pods(
    cluster: Cluster, namespace: str, kubectl: Kubectl, home: Path, tmp_path: Path, data_url: str
) -> None:
    give_image(cluster)
    folder = tmp_path / "folder"
    write_files(folder)
    environment = {**cluster_environment(cluster, namespace, kubectl, tmp_path), "DATA_URL": data_url}
    config = tmp_path / "kubeconfig"
    config.write_text(config.read_text().replace('"lab"', '"juju"'))
    place = f"/var/lib/longboat-{namespace}"
    make = ["longboat", "volume", "create", "data", "--host-path", place, "--on", "juju"]
    subprocess.run(make, env=environment, check=True)
    try:
        for block in CONSOLE[1:]:
            run_block(block, folder, environment)
    finally:
        subprocess.run(["longboat", "rm", "--all", "--force", "--yes", "--on", "juju"], env=environment, check=True)
        subprocess.run(["longboat", "volume", "rm", "data", "--yes", "--on", "juju"], env=environment, check=True)
