"""Removal of an ended sweep from a cluster: its ConfigMap owns the records of its trials, and these all the rest."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

from longboat.core.errors import EngineError, NotFound
from longboat.core.runs import SWEEP_UID
from longboat.engines.engine import Engine
from longboat.engines.kubernetes.creation import is_owned
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.record_store import list_records
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ObjectNotFound
from longboat.kubeapi.kinds import CONFIG_MAP
from longboat.sweeps.kubernetes.store import ClusterSweep, StoredSweep
from longboat.sweeps.kubernetes.sweep_objects import map_name

AT_ONCE = 8
"""Trials that are removed at once: each waits for its pods."""
GONE_S = 300.0
"""For the cluster to remove what a thousand trials left; its collector removes a few hundred objects a second."""
LOOK_S = 0.5  # a list of what is left, in pages; it takes seconds


def remove_cluster_sweep(engine: Engine, name: str, *, purge: bool) -> None:
    """Returns when its trials are gone. Raises EngineError."""
    assert isinstance(engine, KubernetesEngine)
    client = engine.client
    stored = ClusterSweep(client, name).read()
    trials = _trials(client, stored)
    if stored.base.storage is not None or (purge and stored.base.checkpoint_store is not None):

        def delete(run: str) -> None:  # what is in a storage goes with no object
            with contextlib.suppress(NotFound):
                engine.delete(run, purge=purge)

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="remove") as pool:
            list(pool.map(delete, trials))
    client.delete(CONFIG_MAP, map_name(name), uid=stored.uid)
    deadline = time.monotonic() + GONE_S
    while left := _trials(client, stored):
        if time.monotonic() > deadline:
            raise EngineError(f"the sweep {name} is removed, but runs of it are still there: {', '.join(left[:4])}")
        time.sleep(LOOK_S)


def remove_damaged_map(engine: Engine, name: str) -> None:
    """Remove the ConfigMap of a sweep that cannot be read; what it owns goes with it."""
    assert isinstance(engine, KubernetesEngine)
    with contextlib.suppress(ObjectNotFound):
        engine.client.delete(CONFIG_MAP, map_name(name))


def _trials(client: Client, stored: StoredSweep) -> list[str]:
    """Runs that the sweep owns, expired ones too. Whoever may write ConfigMaps can write one of an ended sweep whose
    record has the uid of another's, and so the labels of its runs: only the API server's uid of the object counts."""
    listed = list_records(client, labels=f"{SWEEP_UID}={stored.record.uid}")
    return [each.record.name for each in listed if is_owned(each.body, stored.uid)]
