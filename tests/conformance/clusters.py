"""The Kubernetes engine under test: a namespace, a claim and a GPU resource of the test's own in a shared cluster.

The node of the test cluster shares this machine's processes and files (all but /var and /run), so that what a run does
there can be seen from here.
"""

from __future__ import annotations

import base64
import functools
import gzip
import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from longboat.engines.engine import Engine
from testbed import api, kueue, network
from testbed.clusters import Cluster

Flavour = Literal["kubernetes", "jobset", "kueue"]

NODE = "node-0"
IN_POD = "/longboat/storage"
IMAGE = "longboat.test/python:latest"


class ClusterPlace:
    """One test's share of a cluster."""

    fields: Mapping[str, Any] = {}
    is_this_machine = False
    passes_stdin = True
    unsupported = (
        ({"volumes": {"/data": {"path": "relative"}}}, ["volumes./data", "relative"], ["claim"]),
        ({"volumes": {"/data": {"claim": "no-such-claim"}}}, ["no-such-claim"], ["claim"]),
    )

    def __init__(self, root: Path, cluster: Cluster, namespace: str, flavour: Flavour) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.flavour = flavour
        self.storage = root / "storage"
        self.storage.mkdir()
        self.gpu = f"{namespace}.longboat.test/gpu"
        self._api = api.Api(cluster)
        home = root / "home"
        home.mkdir()
        (home / "config.yaml").write_text(json.dumps({"kubernetes": self._settings()}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LONGBOAT_")}
        self.environment: Mapping[str, str] = {
            **kept,
            "LONGBOAT_HOME": str(home),
            "KUBECONFIG": str(cluster.kubeconfig),
        }
        self._home = home
        self._server: http.server.ThreadingHTTPServer | None = None
        self.keeps_gpus_for_a_retry = self.has_own_gate = flavour != "kueue"
        if flavour != "kueue":
            self.unsupported = (*self.unsupported, ({"queue": "research"}, ["research"], ["queue"]))
        self.engine: Engine = self.again()

    def _settings(self) -> dict[str, Any]:
        found = {
            "image": IMAGE,
            "storage": {"claim": "storage"},
            "allow_host_paths": True,
            "gpu_resource": self.gpu,
        }
        return {**found, "queue": self.namespace} if self.flavour == "kueue" else found

    @property
    def api(self) -> api.Api:
        """A connection that the server has not closed for having been idle."""
        self._api.close()
        return self._api

    def again(self) -> Engine:
        from longboat.engines.kubernetes.engine import KubernetesEngine

        return KubernetesEngine(namespace=self.namespace, environment=self.environment)

    # what the place has

    def make(self) -> None:
        name = f"{self.namespace}-storage"
        reference = {"namespace": self.namespace, "name": "storage"}
        common: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(self.storage)}, "claimRef": reference}
        volume["persistentVolumeReclaimPolicy"] = "Retain"
        claim = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
        self.api.create(_body("PersistentVolume", {"name": name}, {**common, **volume}))
        self.api.create(_body("PersistentVolumeClaim", reference, {**common, **claim}))
        bound = api.path_of("PersistentVolumeClaim", "v1", self.namespace, "storage")
        api.wait_for(
            "the claim is bound",
            lambda: (self.api.get(bound) or {}).get("status", {}).get("phase") == "Bound",
            30.0,
        )
        if self.flavour == "kueue":
            self._make_queue(0)
            self._make_priority(f"{self.namespace}-urgent", 5)
        self.baseline = {(kind, name) for kind, name, _ in self._objects()}

    def _make_queue(self, gpus: int) -> None:
        node = self.api.get(api.path_of("Node", "v1", name=NODE)) or {}
        cpus = node["status"]["allocatable"]["cpu"]
        quotas = {"cpu": cpus, "memory": "1Pi", "ephemeral-storage": "1Pi", self.gpu: str(gpus)}
        objects = kueue.queue(self.namespace, self.namespace, quotas)
        objects[1]["spec"]["queueingStrategy"] = "StrictFIFO"
        self.api.apply(objects)

    def _make_priority(self, name: str, value: int) -> None:
        body = {
            "apiVersion": kueue.VERSION,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        self.api.call("POST", _path_of_priority(""), body)

    def remove(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self.api.delete(api.path_of("PersistentVolume", "v1", name=f"{self.namespace}-storage"))
        if self.flavour == "kueue":
            for kind in ("ClusterQueue", "ResourceFlavor"):
                self.api.delete(api.path_of(kind, kueue.VERSION, name=self.namespace))
            self.api.delete(_path_of_priority(f"{self.namespace}-urgent"))
        self._show_gpus(None)
        self._api.close()

    def with_gpus(self, *ids: str) -> Mapping[str, str]:
        self._show_gpus(len(ids))
        if self.flavour == "kueue":
            self._make_queue(len(ids))
        return self.environment

    def _show_gpus(self, number: int | None) -> None:
        amount = {self.gpu: None if number is None else str(number)}
        change = {"status": {"capacity": amount, "allocatable": amount}}
        self.api.merge(api.path_of("Node", "v1", name=NODE) + "/status", change)

    def shown_gpus(self, *ids: str) -> list[str]:
        """The test's GPUs are numbers without devices: a rank that holds some is told of none."""
        return ["-"]

    def url_of(self, path: Path) -> str:
        """Served from this machine, which pods reach at the other end of their node's cable."""
        if self._server is None:
            folder = functools.partial(_Quiet, directory="/")
            self._server = http.server.ThreadingHTTPServer((network.gateway_address(self.cluster, 0), 0), folder)
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{path}"

    # what is left of runs

    def processes(self, uid: str) -> list[int]:
        mark = f"LONGBOAT_RUN_UID={uid}".encode()
        return [pid for pid, entry in _entries() if mark in _read(entry / "environ").split(b"\0")]

    def is_process(self, pid: int, *, uid: str) -> bool:
        """A pid that a rank printed is one of its pod's own numbering."""
        pods = self.api.items(api.path_of("Pod", "v1", self.namespace))
        uids = [pod["metadata"]["uid"].encode() for pod in pods]
        for _, entry in _entries():
            numbers = [line for line in _read(entry / "status").splitlines() if line.startswith(b"NSpid:")]
            if numbers and numbers[0].split()[-1] == str(pid).encode():
                group = _read(entry / "cgroup").replace(b"_", b"-")
                if any(one in group for one in uids):
                    return True
        return False

    def traces(self, run: str, uid: str) -> list[str]:
        found = [
            f"{kind} {name}"
            for kind, name, labels in self._objects()
            if (kind, name) not in self.baseline and labels.get("longboat.dev/run", run) == run
        ]
        found += [str(path) for path in self.storage.rglob("*") if "checkpoints" not in path.parts and path.is_file()]
        return found

    def _objects(self) -> list[tuple[str, str, dict[str, str]]]:
        """Everything in the namespace, of every type that the cluster serves."""
        found = []
        server = self.api
        for kind, path in self._collections():
            if kind in ("Event", "PodMetrics"):
                continue
            for item in server.items(path):
                found.append((kind, item["metadata"]["name"], item["metadata"].get("labels") or {}))
        return found

    def _collections(self) -> list[tuple[str, str]]:
        server = self.api
        versions = ["/api/v1"]
        for group in server.call("GET", "/apis")["groups"]:
            versions.append(f"/apis/{group['preferredVersion']['groupVersion']}")
        found = []
        for version in versions:
            for resource in server.call("GET", version)["resources"]:
                if resource["namespaced"] and "list" in resource["verbs"] and "/" not in resource["name"]:
                    found.append((resource["kind"], f"{version}/namespaces/{self.namespace}/{resource['name']}"))
        return found

    def has_checkpoints(self, checkpoint_dir: str) -> bool:
        return (self.storage / checkpoint_dir.removeprefix(f"{IN_POD}/")).is_dir()

    def holding(self, needle: bytes) -> list[str]:
        """Objects and files with these bytes in them, packed or not; Secrets that were made for secrets excepted."""
        found = []
        server = self.api
        for kind, path in self._collections():
            for item in server.items(path):
                name = item["metadata"]["name"]
                if kind == "Secret" and name.endswith("-env"):
                    continue
                if any(needle in text for text in _texts(item)):
                    found.append(f"{kind} {name}")
        files = (path for root in (self.storage, self._home) for path in root.rglob("*") if path.is_file())
        return [*found, *(str(path) for path in files if needle in path.read_bytes())]


def _body(kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def _path_of_priority(name: str) -> str:
    return f"/apis/{kueue.VERSION}/workloadpriorityclasses/{name}".rstrip("/")


def _entries() -> Iterator[tuple[int, Path]]:
    for entry in Path("/proc").glob("[0-9]*"):
        yield int(entry.name), entry


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _texts(item: dict[str, Any]) -> Iterator[bytes]:
    yield json.dumps(item).encode()
    for value in (item.get("data") or {}).values() if item.get("kind", "Secret") == "Secret" else ():
        try:
            data = base64.b64decode(value, validate=True)
        except ValueError:
            continue
        yield data
        if data[:2] == b"\x1f\x8b":
            yield gzip.decompress(data)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def open_cluster(root: Path, cluster: Cluster, namespace: str, flavour: Flavour) -> Iterator[ClusterPlace]:
    place = ClusterPlace(root, cluster, namespace, flavour)
    place.make()
    try:
        yield place
    finally:
        # Whatever still runs goes with the namespace; it need not wait for its grace.
        for status in place.engine.list():
            if not status.is_final:
                place.engine.stop(status.name, grace_s=0)
        place.remove()
        shutil.rmtree(place.storage, ignore_errors=True)
