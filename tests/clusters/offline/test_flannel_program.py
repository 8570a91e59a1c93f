"""flanneld that is downloaded or lies here: no other content than its checksum says reaches a host, or runs there."""

from __future__ import annotations

import functools
import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.offline.flannel_program import flanneld_of, unpinned
from longboat.clusters.plan import flannel
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.steps import Step
from longboat.clusters.spec import ClusterSpec, Network, SoftwareSource
from longboat.core.errors import BundleError, JobError
from tests.clusters.worlds import bare, cluster

PROGRAM = b"#!/bin/sh\necho v0.28.0\n"
SUM = hashlib.sha256(PROGRAM).hexdigest()
FACTS = {"w-0": bare("w-0", architecture="amd64")}


def spec_of(location: str) -> ClusterSpec:
    return cluster(network=Network(kind="flannel"), source=SoftwareSource(flanneld=location))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A file and its URL."""
    file = tmp_path / "served" / "flanneld"
    file.parent.mkdir()
    file.write_bytes(PROGRAM)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(file.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield file, f"http://127.0.0.1:{server.server_port}/flanneld"
    server.shutdown()
    server.server_close()


def test_a_download_with_another_checksum_is_refused_and_not_kept(served: tuple[Path, str], tmp_path: Path) -> None:
    file, url = served
    cache = tmp_path / "cache"
    spec = spec_of(f"{url}#sha256={SUM}")
    file.write_bytes(PROGRAM + b"# somebody else's\n")
    with pytest.raises(BundleError, match="is not the flanneld that source.flanneld names"):
        flanneld_of(spec, FACTS, cache)
    assert list(cache.iterdir()) == []
    file.write_bytes(PROGRAM)
    assert flanneld_of(spec, FACTS, cache)["amd64"].path.read_bytes() == PROGRAM
    # What was verified is taken again without asking; one that was changed here is not.
    file.write_bytes(b"another")
    kept = flanneld_of(spec, FACTS, cache)["amd64"].path
    kept.write_bytes(b"damaged")
    with pytest.raises(BundleError):
        flanneld_of(spec, FACTS, cache)
    assert unpinned(spec, flanneld_of(spec_of(url), FACTS, cache)) == []


def test_the_checksum_of_one_that_is_not_pinned_is_told(served: tuple[Path, str], tmp_path: Path) -> None:
    spec = spec_of(served[1])
    (line,) = unpinned(spec, flanneld_of(spec, FACTS, tmp_path / "cache"))
    assert line.startswith(f"flanneld 0.28.0 for amd64 has the checksum {SUM}")


def test_a_file_here_is_compared_too(tmp_path: Path) -> None:
    (tmp_path / "flanneld").write_bytes(PROGRAM)
    assert flanneld_of(spec_of(f"{tmp_path}/flanneld#sha256={SUM}"), FACTS, tmp_path)["amd64"].size == len(PROGRAM)
    with pytest.raises(BundleError, match=f"its checksum is {SUM}"):
        flanneld_of(spec_of(f"{tmp_path}/flanneld#sha256={'0' * 64}"), FACTS, tmp_path)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://mirror.test/flanneld", "over http could be anybody's"),
        ("https://mirror.test/flanneld#sha256=12", "64 hexadecimal digits"),
        ("https://mirror.test/flanneld#md5=12", "64 hexadecimal digits"),
    ],
)
def test_locations_in_a_cluster_file(location: str, message: str, tmp_path: Path) -> None:
    text = f"name: lab\nhosts: [one]\nnetwork: flannel\nsource: {{flanneld: '{location}'}}\n"
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(JobError, match=message):
        read_cluster(tmp_path / "bad.yaml")
    (tmp_path / "good.yaml").write_text(text.replace(location, f"http://mirror.test/flanneld#sha256={SUM}"))
    assert read_cluster(tmp_path / "good.yaml").source.flanneld == f"http://mirror.test/flanneld#sha256={SUM}"


@pytest.mark.parametrize("arrived", [PROGRAM, PROGRAM[:-1], PROGRAM + b"x", b""])
def test_a_host_runs_what_was_sent_or_nothing(arrived: bytes, tmp_path: Path) -> None:
    step = flannel.program(spec_of("flanneld"), cluster().hosts[0], FACTS["w-0"])
    assert isinstance(step, Step)
    (tmp_path / "journal").mkdir()
    script = (PRELUDE + step.script).replace("/usr/local/bin/flanneld", str(tmp_path / "flanneld"))
    script = script.replace("LB=/var/lib/longboat", f"LB={tmp_path}/journal")
    done = subprocess.run(["sh", "-c", script], input=f"{SUM}\n".encode() + arrived, capture_output=True, check=False)
    installed = tmp_path / "flanneld"
    if arrived == PROGRAM:
        assert done.returncode == 0 and installed.read_bytes() == PROGRAM, done.stderr
    else:
        assert done.returncode == 1 and b"flanneld did not arrive whole" in done.stderr
        assert not list(tmp_path.glob("flanneld*"))
