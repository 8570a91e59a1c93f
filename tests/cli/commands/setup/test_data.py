"""`longboat data` on a folder of this machine, and on a claim of a cluster with real pods."""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.exec.static_volumes import volume_name
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import JOB, VOLUME
from testbed import network
from testbed.clusters import Cluster
from tests.cli.conftest import Longboat
from tests.engines.kubernetes.benches import IMAGE


def test_on_a_folder_of_this_machine(longboat: Longboat, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one")
    url, folder = f"file://{tmp_path}/words.txt", "./shared"
    assert "imported into shared" in longboat("data", "import", url, folder).err
    assert "it is there already, in shared" in longboat("data", "import", url, folder).err
    (row,) = json.loads(longboat("data", "ls", folder, "-o", "json").out)
    assert (row["folder"], row["url"], row["size"], row["is_there"]) == (".", url, 3, True)
    assert "words.txt" in longboat("data", "ls", folder).out
    assert longboat("data", "verify", folder, "--source").out == f".: {url}: the source is unchanged\n"

    (tmp_path / "words.txt").write_text("another")
    assert "as it was imported" in longboat("data", "verify", folder).out
    assert ": changed at its source (" in longboat("data", "verify", folder, "--source", code=1).out
    assert "imported into shared" in longboat("data", "import", "--refresh", url, folder).err
    assert (longboat.folder / "shared/words.txt").read_text() == "another"
    assert "the source is unchanged" in longboat("data", "import", "--refresh", url, folder).err

    (longboat.folder / "shared/words.txt").write_text("ANOTHER")
    assert "words.txt is another file now" in longboat("data", "verify", folder, code=1).out
    assert "nothing was imported into x of ./shared" in longboat("data", "rm", folder, "x", code=202).err
    longboat("data", "rm", folder, ".")
    assert not (longboat.folder / "shared/words.txt").exists()
    assert "nothing was imported into ./shared" in longboat("data", "ls", folder).err
    assert "leads out of the volume" in longboat("data", "import", url, "claim/../x", code=201).err


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that pods reach over HTTP, and its URL."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    address = network.gateway_address(cluster, 0)
    server = http.server.ThreadingHTTPServer((address, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://{address}:{server.server_port}"
    server.shutdown()


@pytest.mark.pods
def test_two_who_ask_at_once_share_one_import(
    longboat: Longboat, home: Path, cluster: Cluster, namespace: str, site: tuple[Path, str]
) -> None:
    (home / "config.yaml").write_text(json.dumps({"kubernetes": {"image": IMAGE}}))
    longboat.environment["KUBECONFIG"] = str(cluster.kubeconfig)
    where = ("-n", namespace)
    folder, base = site
    (folder / "set.txt").write_text("one")
    longboat("volume", "create", "shared", "--host-path", f"/var/lib/longboat-{namespace}", *where)
    words = ("data", "import", f"{base}/set.txt", "shared/sets", *where)
    both = [longboat.popen(*words) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
    with Client.open(namespace=namespace, environment={"KUBECONFIG": str(cluster.kubeconfig)}) as client:
        runs = {body["metadata"]["labels"][names.RUN] for body in client.list(JOB, labels=names.RUN).items}
        assert len(runs) == 1, "one Job for both"
        (row,) = json.loads(longboat("data", "ls", "shared", "-o", "json", *where).out)
        assert (row["folder"], row["url"], row["files"], row["bytes"]) == ("sets", f"{base}/set.txt", 1, 3)
        os.utime(folder / "set.txt", (1, 1))
        told = longboat("data", "verify", "shared", "--source", *where, code=1).out
        assert told.startswith(f"sets: {base}/set.txt: changed at its source")
        longboat("data", "rm", "shared", "sets", *where)
        assert "nothing was imported" in longboat("data", "ls", "shared", *where).err
        longboat("rm", "--all", "--yes", "--namespace", namespace)  # its pods have ended, and still hold the claim
        longboat("volume", "rm", "shared", "--yes", *where)
        assert client.find(VOLUME, volume_name(namespace, "shared")) is None
