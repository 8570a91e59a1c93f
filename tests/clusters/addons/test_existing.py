"""Add-ons in a cluster that somebody else made: `up` puts them in, `down` takes exactly these out. Real API server,
simulated nodes: pods are said to be ready, so what answers for webhooks is left out of the manifests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.clusters.addons.autoscaler import make_account
from longboat.clusters.addons.observe import labelled_objects
from longboat.clusters.addons.remove import remove_addons
from longboat.clusters.spec import Addon
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CRD, JOBSET, NAMESPACE, SERVICE_ACCOUNT, STORAGE_CLASS
from testbed import binaries, jobset, kueue, manifests
from testbed.clusters import Cluster
from testbed.manifests import Controller

pytestmark = [pytest.mark.cluster]

UNSERVED = ("APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Admin:
    """An administrator's machine: a cluster file, a kubeconfig, the command."""

    def __init__(self, folder: Path, cluster: Cluster, context: str) -> None:
        self.folder, self.cluster, self.context = folder, cluster, context

    def write(self, **fields: Any) -> None:
        text = {"name": "prod", "kind": "existing", "context": self.context, "image": "longboat.test/any:1", **fields}
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(text))

    def __call__(self, *words: str, code: int = 0) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LONGBOAT_")}
        environment = {**kept, "KUBECONFIG": str(self.cluster.kubeconfig), "LONGBOAT_HOME": str(self.folder / "home")}
        command = [sys.executable, "-m", "longboat", "cluster", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client.open(environment={"KUBECONFIG": str(cluster.kubeconfig)}) as client:
        yield client


@pytest.fixture
def admin(tmp_path: Path, cluster: Cluster, client: Client, kwok_nodes: Callable[..., list[str]]) -> Iterator[Admin]:
    kwok_nodes("1")
    yield Admin(tmp_path, cluster, client.context)
    remove_addons(client, lambda text: None, purge=True)


def published(controller: Controller, folder: Path) -> str:
    """The manifest of its project, less what a simulated pod cannot answer for."""
    objects = manifests.rendered(controller, binaries.find(("kubernetes",)))
    for body in objects:
        if body["kind"] == "CustomResourceDefinition":
            body["spec"].pop("conversion", None)
    file = folder / f"{controller.name}.json"
    kept = [body for body in objects if body["kind"] not in UNSERVED]
    file.write_text(json.dumps({"kind": "List", "items": kept}))
    return file.name


def names(client: Client, kind: Any) -> set[str]:
    return {body["metadata"]["name"] for body in client.list(kind, everywhere=True).items}


def versions(client: Client) -> dict[str, str]:
    return {body["metadata"]["uid"]: body["metadata"]["resourceVersion"] for body in labelled_objects(client)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "published_ones",
    [
        pytest.param((jobset.CONTROLLER,), id="jobset"),
        pytest.param((jobset.CONTROLLER, kueue.CONTROLLER), id="kueue", marks=pytest.mark.soak),  # 79 objects more
    ],
)
def test_addons_come_stay_as_they_are_and_go(
    admin: Admin, client: Client, namespace: str, published_ones: tuple[Controller, ...]
) -> None:
    before = {kind.kind: names(client, kind) for kind in (CRD, NAMESPACE, STORAGE_CLASS)}
    files = {controller.name: published(controller, admin.folder) for controller in published_ones}
    addons = ["controller", "storage", *files]
    admin.write(addons=addons, manifests=files)

    planned = admin("up", "--dry-run")
    assert "+ jobset 0.12.0: install, 18 objects" in planned and "+ storage" in planned
    assert labelled_objects(client) == []

    told = admin("up")
    assert "jobset 0.12.0: works" in told and told.count(": works") == len(addons), told
    assert "the default class" in told
    seen = versions(client)

    again = admin("up", "-o", "json")
    assert again.count("nothing to do") == len(addons) and versions(client) == seen
    assert json.loads(again.splitlines()[0]) == {"addon": "storage", "state": "same"}
    assert admin("up", "--dry-run").count("nothing to do") == len(addons)

    rows = {row["addon"]: row for row in json.loads(admin("status", "-o", "json"))}
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(addons, "ready")
    assert rows["jobset"]["version"] == "0.12.0"

    # What users made of the add-on's kinds stays, with its definition.
    client.create({**jobset.SAMPLE, "metadata": {"name": "mine", "namespace": namespace}})
    told = admin("down", "--yes")
    assert f"kept: jobsets.jobset.x-k8s.io with 1 object of users, {namespace}/mine for one" in told
    assert names(client, CRD) - before["CustomResourceDefinition"] == {"jobsets.jobset.x-k8s.io"}
    assert client.find(JOBSET, "mine", namespace=namespace) is not None

    assert "jobset: removed" in admin("down", "--yes", "--purge-data")
    assert {kind.kind: names(client, kind) for kind in (CRD, STORAGE_CLASS)} == {
        kind.kind: before[kind.kind] for kind in (CRD, STORAGE_CLASS)
    }
    assert labelled_objects(client) == []
    assert "nothing to remove" in admin("down", "--yes")


def test_what_somebody_else_installed_is_left_alone(admin: Admin, client: Client) -> None:
    file = published(jobset.CONTROLLER, admin.folder)
    objects = json.loads((admin.folder / file).read_text())["items"]
    theirs = [body for body in objects if body["kind"] == "CustomResourceDefinition"]
    for body in theirs:
        client.create(body)
    try:
        admin.write(addons=["jobset"], manifests={"jobset": file})
        told = "jobset: is there already (CustomResourceDefinition jobsets.jobset.x-k8s.io)"
        assert f"= {told}" in admin("up", "--dry-run") and told in admin("up")
        assert "nothing to remove" in admin("down", "--yes")
        assert client.find(CRD, "jobsets.jobset.x-k8s.io") is not None
    finally:
        for body in theirs:
            client.delete(CRD, body["metadata"]["name"])


def test_one_that_fails_stops_no_other(admin: Admin, client: Client) -> None:
    (admin.folder / "broken.yaml").write_text("kind: Pod\nmetadata: {name: x}\n")
    admin.write(addons=["jobset", "controller"], manifests={"jobset": "broken.yaml"})
    assert "! jobset: " in admin("up", "--dry-run", code=1)
    told = admin("up", code=205)
    assert "Pod x: down could not remove this kind" in told and "controller 0" in told
    assert "1 of 2 add-ons failed" in told and "the same command again goes on" in told
    admin("down", code=201)  # nobody was asked
    assert "controller: removed" in admin("down", "--yes")


@pytest.mark.parametrize("addons", [["autoscaler"], ["controller", "autoscaler"]])
def test_the_autoscalers_account_is_made_before_the_rest(admin: Admin, client: Client, addons: list[Addon]) -> None:
    """A cloud gives rights to its uid: neither the installation nor another `up` makes it anew."""
    uid = make_account(client, addons)
    assert make_account(client, addons) == uid
    machine = {"cpus": 4, "memory": "16Gi"}
    pools = {
        "pools": [{"name": "cpu", "max": 1, "machine": machine, "provider": "simulated"}],
        "providers": {"simulated": {"kind": "kwok"}},
    }
    (admin.folder / "pools.yaml").write_text(json.dumps(pools))
    admin.write(addons=addons, pools="pools.yaml")
    assert admin("up").count(": works") == len(addons)
    account = client.get(SERVICE_ACCOUNT, "longboat-autoscaler", namespace="longboat-system")
    assert account["metadata"]["uid"] == uid
    assert admin("up").count(": nothing to do") == len(addons)
    admin("down", "--yes")
    assert labelled_objects(client) == []
