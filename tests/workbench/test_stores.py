"""Whose object stores a board reads: runs of a real API server that name other servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from longboat.core.errors import EngineError
from longboat.workbench.stores import stores_of
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.conftest import bench as bench
from tests.engines.kubernetes.conftest import flavour as flavour
from tests.storage.conftest import s3 as s3
from tests.storage.realstores import Running


@pytest.mark.cluster
@pytest.mark.stores
def test_a_run_whose_server_is_not_named_here_keeps_no_board_from_the_others(
    bench: Bench, s3: Running, kwok_nodes: Callable[..., list[str]]
) -> None:
    """Whoever may write a record would else shut all boards of the namespace."""
    kwok_nodes("1:cpu=16,memory=64Gi")
    keys = {name: value for name, value in s3.environment.items() if "ENDPOINT" not in name}
    bench.environment |= s3.environment
    theirs = {"AWS_ENDPOINT_URL": s3.environment["AWS_ENDPOINT_URL"]}
    for name, env in (("mine", {}), ("theirs", theirs), ("also", theirs)):
        fields = {"checkpoints": {"to": "s3://data/boards"}, "env": env}
        bench.engine = bench.open()
        bench.engine.submit(bench.submission(run_id=name, **fields))
    bench.environment = {name: bench.environment[name] for name in ("LONGBOAT_HOME", "KUBECONFIG", "PATH")} | keys
    with contextlib.closing(bench.open()) as engine:
        said: list[str] = []
        (pair,) = stores_of(engine, ["mine", "theirs", "also"], said.append)
        assert pair.startswith("mine=s3://data/boards/")
        assert len(said) == 2 and all("a record does not decide where credentials go" in text for text in said)
        with pytest.raises(EngineError, match="a record does not decide"):
            stores_of(engine, ["theirs"], said.append)
