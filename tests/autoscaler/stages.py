"""A cluster with simulated machines for one test: pools, demand, and the autoscaler in this process."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from longboat.autoscaler.loop import AutoscalerLoop
from longboat.autoscaler.model.config import AutoscalerConfig, LoopPace
from longboat.autoscaler.model.pools_file import template_of
from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import POOL_LABEL, AutoscalerSettings, Pool
from longboat.autoscaler.model.turn import LoopTurn, TurnListener
from longboat.autoscaler.providers.kwok import BOOKS, KwokProvider, KwokState, SimulatedFault
from longboat.autoscaler.providers.provider import Instance, Provider
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, NODE, POD
from testbed.clusters import Cluster

LONG_S = 90.0
GPU = "nvidia.com/gpu"
QUICK = LoopPace(interval_s=0.5, least_s=0.05, settle_s=0.0)
STAGES = "testbed.longboat.test/"


def pool(name: str, **more: Any) -> Pool:
    machine = {"cpus": 32, "memory": 256 << 30, "gpus": 8, **more.pop("machine", {})}
    return Pool(name=name, machine=template_of(name, machine), **{"max": 10, "boot_s": 20.0, **more})


class Told:
    """All turns, and everything that went wrong."""

    def __init__(self) -> None:
        self.turns: list[LoopTurn] = []
        self.failures: list[str] = []

    def turned(self, turn: LoopTurn) -> None:
        self.turns.append(turn)

    def failed(self, message: str) -> None:
        self.failures.append(message)

    def results(self, kind: str) -> list[Any]:
        return [result for turn in self.turns for result in turn.results if result.action.kind == kind]


class Stage:
    """`prefix` makes the names of pools (and so of nodes) this test's own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        self.client = Client.open(namespace=namespace, environment=self.environment)
        self.namespace = namespace
        self.prefix = f"p{secrets.token_hex(3)}"
        self.told = Told()

    def close(self) -> None:
        """Nodes are the cluster's, not the namespace's."""
        for node in self.nodes():
            self.client.delete(NODE, node["metadata"]["name"])
        self.client.close()

    def name(self, pool_name: str) -> str:
        return f"{self.prefix}-{pool_name}"

    def pool(self, pool_name: str, **more: Any) -> Pool:
        return pool(self.name(pool_name), **more)

    # the autoscaler

    def config(self, *pools: Pool, pace: LoopPace = QUICK, **settings: Any) -> AutoscalerConfig:
        known = AutoscalerSettings(**{"idle_s": 0.0, "join_factor": 3.0, **settings})
        return AutoscalerConfig(pools=pools, settings=known, home=self.namespace, pace=pace)

    @contextlib.contextmanager
    def scaling(
        self,
        config: AutoscalerConfig,
        kwok: KwokSettings | None = None,
        client: Client | None = None,
        provider: Provider | Mapping[str, Provider] | None = None,
        listeners: tuple[TurnListener, ...] = (),
    ) -> Iterator[Told]:
        client = client or self.client
        if not isinstance(provider, Mapping):
            provider = {"kwok": provider or KwokProvider(client, self.namespace, kwok)}
        ending, told = threading.Event(), Told()
        loop = AutoscalerLoop(client, config, provider, listeners=(told, self.told, *listeners))
        thread = threading.Thread(target=loop.run, args=(ending,))
        thread.start()
        try:
            yield told
        finally:
            ending.set()
            thread.join(LONG_S)
            assert not thread.is_alive()

    def fault(self, *faults: SimulatedFault) -> None:
        """What the simulated cloud refuses from now on."""
        data = {"faults": json.dumps(msgspec.to_builtins(faults))}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": BOOKS, "namespace": self.namespace}}
        self.client.apply({**body, "data": data})

    # what there is

    def nodes(self, pool_name: str | None = None) -> list[dict[str, Any]]:
        found = self.client.list(NODE, labels=POOL_LABEL).items
        wanted = self.prefix if pool_name is None else self.name(pool_name)
        return [one for one in found if one["metadata"]["labels"][POOL_LABEL].startswith(wanted)]

    def machines(self) -> tuple[Instance, ...]:
        found = self.client.find(CONFIG_MAP, BOOKS, namespace=self.namespace)
        text = ((found or {}).get("data") or {}).get("machines", "{}")
        return msgspec.json.decode(text, type=KwokState).machines

    def pods(self, phase: str | None = None) -> list[dict[str, Any]]:
        found = self.client.list(POD, namespace=self.namespace).items
        return [one for one in found if phase in (None, (one.get("status") or {}).get("phase"))]

    # demand

    def job(self, name: str, *, gpus: int = 8, pods: int = 1, pool_name: str = "gpu", **more: Any) -> None:
        """A Job of so many pods; `run_for` ends them."""
        self.client.create(job_of(name, self.namespace, {POOL_LABEL: self.name(pool_name)}, gpus, pods, **more))

    def end(self, name: str) -> None:
        self.client.delete(JOB, name, namespace=self.namespace)

    def is_done(self, name: str) -> bool:
        found = self.client.get(JOB, name, namespace=self.namespace)
        return any(one["type"] == "Complete" for one in (found.get("status") or {}).get("conditions") or ())


def job_of(
    name: str,
    namespace: str,
    selector: dict[str, str],
    gpus: int = 8,
    pods: int = 1,
    *,
    run_for: str | None = None,
    labels: dict[str, str] | None = None,
    suspend: bool = False,
    cpu: str = "1",
    tolerant: bool = False,
) -> dict[str, Any]:
    annotations = {f"{STAGES}run-for": run_for} if run_for else {}
    requests = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {})}
    container = {
        "name": "main",
        "image": "x",
        "resources": {"requests": requests, "limits": {GPU: str(gpus)} if gpus else {}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "suspend": suspend,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations, "labels": labels or {}},
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": selector,
                    "terminationGracePeriodSeconds": 0,
                    "tolerations": [{"operator": "Exists"}] if tolerant else [],
                    "containers": [container],
                },
            },
        },
    }


def wait_for(what: str, holds: Callable[[], Any], timeout_s: float = LONG_S) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(ApiError):
            if holds():
                return
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)
