"""Job, pools, cluster files and kubeconfigs, spoiled: a value or an error in words. Never a traceback or a hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from longboat.autoscaler.model.pools_file import read_pools, read_providers
from longboat.clusters.cluster_file import read_cluster
from longboat.core.errors import JobError, LongboatError
from longboat.kubeapi import kubeconfig
from longboat.kubeapi.client import Client
from longboat.specs.dump import job_to_mapping
from longboat.specs.read import read_job
from tests.clusters.test_cluster_file import ALL as CLUSTER
from tests.clusters.test_kubeconfig_file import ADMIN, MINE
from tests.fuzz.mutations import examples, spoiled

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str, *words: str) -> list[bytes]:
    """The YAML examples of a page that have all these words."""
    texts = (ROOT / "docs" / page).read_text(encoding="utf-8").split("```yaml\n")[1:]
    return [text.partition("```")[0].encode() for text in texts if all(word in text for word in words)]


JOBS = [*blocks("job-file.md", "run"), *(path.read_bytes() for path in sorted(ROOT.glob("examples/**/*.yaml")))]
POOLS = blocks("autoscaler.md", "pools:")
CLUSTERS = [CLUSTER.encode(), *blocks("clusters.md", "name:")]
KUBECONFIGS = [MINE.encode(), ADMIN.encode()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("fuzz")


def in_words(read: Callable[[], Any]) -> Any:
    """What was read; None for an error with a message of few lines that a terminal can show."""
    try:
        return read()
    except JobError as error:
        assert error.problems and all(problem.message and "\n" not in str(problem) for problem in error.problems)
    except LongboatError as error:
        assert error.message and len(error.message) < 20_000
    return None


def test_there_are_samples() -> None:
    assert len(JOBS) > 10 and len(POOLS) > 0 and len(CLUSTERS) > 1


@examples(0.55)
@given(data=spoiled(JOBS))
def test_job_files(folder: Path, data: bytes) -> None:
    file = folder / "job.yaml"
    file.write_bytes(data)
    loaded = in_words(lambda: read_job([file], environment={"A": "1"}))
    if loaded is not None:
        job_to_mapping(loaded.job)


@examples(0.05)
@given(data=spoiled(POOLS))
def test_pools_files(folder: Path, data: bytes) -> None:
    file = folder / "pools.yaml"
    file.write_bytes(data)
    for read in (read_pools, read_providers):
        in_words(lambda read=read: read(file))  # type: ignore[misc]


@examples(0.05)
@given(data=spoiled(CLUSTERS))
def test_cluster_files(folder: Path, data: bytes) -> None:
    file = folder / "cluster.yaml"
    file.write_bytes(data)
    in_words(lambda: read_cluster(file))


@examples(0.05)
@given(data=spoiled(KUBECONFIGS))
def test_kubeconfigs(folder: Path, data: bytes) -> None:
    """Up to a client that could be used: certificates, keys and proxies are read when it is made."""
    file = folder / "config"
    file.write_bytes(data)
    environment = {"KUBECONFIG": str(file), "HOME": str(folder), "PATH": "/nowhere"}
    access = in_words(lambda: kubeconfig.find(None, None, environment))
    if access is not None:
        client = in_words(lambda: Client.open(environment=environment))
        if client is not None:
            client.close()
