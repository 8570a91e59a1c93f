"""What a version before had and the new one has not must not stay; logs come in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from longboat.core.jobs import Serve
from longboat.kubeapi.kinds import DEPLOYMENT, HPA, INGRESS, SERVICE
from longboat.serving.kubernetes import apply
from longboat.serving.kubernetes.logs import LONGEST_LINE, past_lines
from longboat.serving.kubernetes.manifests import ServingRecord, autoscaler_object, service_objects
from tests.sweeps.kubernetes.memory_cluster import MemoryCluster

OPEN = ServingRecord(run="r", step=None, version=1, command=("x",), serve=Serve(ingress="model.example.org"))
CLOSED = msgspec.structs.replace(OPEN, version=2, serve=Serve())


def objects_of(record: ServingRecord) -> list[dict[str, Any]]:
    template = {"spec": {"containers": [{"name": "main", "image": "x", "command": ["python3"]}]}}
    job = {"kind": "Job", "metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template}}
    return service_objects("svc", record, [job], "n0")


def served() -> Any:
    client: Any = MemoryCluster()
    apply.put(client, objects_of(OPEN))
    return client


def test_an_ingress_goes_with_the_first_version_that_has_none() -> None:
    client = served()
    apply.change(client, objects_of(msgspec.structs.replace(OPEN, version=2)))
    assert client.find(INGRESS, "svc") is not None
    apply.change(client, objects_of(CLOSED))
    assert client.find(INGRESS, "svc") is None and client.find(SERVICE, "svc") is not None


def test_an_ingress_of_somebody_else_stays() -> None:
    client = served()
    client.patch(INGRESS, "svc", {"metadata": {"ownerReferences": None}})
    apply.change(client, objects_of(CLOSED))
    assert client.find(INGRESS, "svc") is not None


def test_an_autoscaler_is_removed_by_the_same_rule() -> None:
    client = served()
    deployment = client.get(DEPLOYMENT, "svc")
    apply.remove_owned(client, deployment, HPA)
    apply.put_owned(client, deployment, autoscaler_object("svc", "default", Serve(replicas=1, max_replicas=3)))
    assert client.find(HPA, "svc") is not None
    apply.remove_owned(client, deployment, HPA)
    assert client.find(HPA, "svc") is None


class LongLog:
    """A log of which the next piece is made when it is asked for."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.given, self.is_closed = pieces, 0, False

    def log(self, pod: str, *, tail: int | None) -> LongLog:
        return self

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.given += 1
            yield piece

    def close(self) -> None:
        self.is_closed = True


def test_a_log_is_passed_on_as_it_comes() -> None:
    log: Any = LongLog([b"one\ntw", b"o\n", b"x" * (LONGEST_LINE + 1), b"rest"])
    lines = past_lines(log, [{"metadata": {"name": "p"}}], None)
    assert next(lines).data == b"one\n" and log.given == 1, "not the whole log first"
    assert [line.data for line in lines] == [b"two\n", b"x" * (LONGEST_LINE + 1) + b"\n", b"rest"]
    assert log.is_closed
