"""Add-ons whose pods really run: a claim is written to, JobSet serves its webhooks with the certificate it made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.clusters.addons.remove import remove_addons
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CRD, VOLUME
from testbed import binaries, fixtures, images, jobset, manifests, namespaces, node, profiles
from testbed.clusters import Cluster
from testbed.errors import Missing
from testbed.fixtures import Kubectl
from tests.clusters.addons.test_existing import Admin

pytestmark = [pytest.mark.pods, pytest.mark.soak, pytest.mark.xdist_group("installation")]

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
"""
TRAINER = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 12345}
  containers:
  - name: main
    image: longboat.test/python:latest
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "SCRIPT"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"""


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """Add-ons are for the whole cluster: tests that are not about them must not share one with them."""
    with fixtures.own_cluster("test-addons", profiles.combine(["pods"]), "pods") as made:
        holder = namespaces.holder_of(made, node.name_of(0))
        assert holder is not None
        try:
            images.load(["longboat", "jobset"], binaries.find(("tools", "containerd")), holder, node.SOCKET)
        except Missing as error:
            pytest.skip(str(error))
        yield made


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    return own_cluster


@pytest.fixture
def admin(tmp_path: Path, cluster: Cluster) -> Iterator[Admin]:
    with Client.open(environment={"KUBECONFIG": str(cluster.kubeconfig)}) as client:
        yield Admin(tmp_path, cluster, client.context)
        remove_addons(client, lambda text: None, purge=True)


def run(kubectl: Kubectl, name: str, script: str) -> str:
    """What a pod of a user without rights prints that has the claim at /data."""
    kubectl("apply", "-f", "-", text=TRAINER.replace("NAME", name).replace("SCRIPT", script))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=90s")
    return kubectl("logs", name)


def test_a_claim_is_written_to_kept_and_purged(admin: Admin, kubectl: Kubectl, cluster: Cluster) -> None:
    admin.write(addons=["storage"], image=images.reference("longboat"))
    assert "the default class" in admin("up")
    kubectl("apply", "-f", "-", text=CLAIM)
    assert run(kubectl, "writer", "echo weights > /data/model.pt && id -u") == "12345\n"
    assert run(kubectl, "reader", "cat /data/model.pt") == "weights\n"

    # Without the add-on the data is there still, for pods too.
    assert "kept: the volume of " in admin("down", "--yes")
    assert run(kubectl, "later", "cat /data/model.pt") == "weights\n"
    admin("up")
    kubectl("delete", "pod", "writer", "reader", "later")
    assert "storage: removed" in admin("down", "--yes", "--purge-data")
    with Client.open(environment={"KUBECONFIG": str(cluster.kubeconfig)}) as client:
        assert client.list(VOLUME).items == []


def test_a_claim_that_is_in_use_is_not_purged_behind_its_pod(admin: Admin, kubectl: Kubectl) -> None:
    admin.write(addons=["storage"], image=images.reference("longboat"))
    admin("up")
    kubectl("apply", "-f", "-", text=CLAIM)
    body = TRAINER.replace("NAME", "busy").replace("SCRIPT", "touch /data/x && sleep 600")
    kubectl("apply", "-f", "-", text=body)
    kubectl("wait", "--for=condition=Ready", "pod/busy", "--timeout=90s")
    assert "used by the pod" in admin("down", "--yes", "--purge-data", code=205)
    kubectl("delete", "pod", "busy", "--grace-period=1")
    admin("down", "--yes", "--purge-data")


def test_jobset_works_when_up_says_so(admin: Admin, kubectl: Kubectl, cluster: Cluster) -> None:
    objects = manifests.rendered(jobset.CONTROLLER, binaries.find(("kubernetes",)))
    for body in objects:
        if body["kind"] == "Deployment":
            for container in body["spec"]["template"]["spec"]["containers"]:
                container |= {"image": images.reference("jobset"), "imagePullPolicy": "IfNotPresent"}
                container["command"] = ["/jobset"]
                container["resources"]["requests"] = {"cpu": "10m", "memory": "64Mi"}
    (admin.folder / "jobset.json").write_text(json.dumps({"kind": "List", "items": objects}))
    admin.write(addons=["jobset"], manifests={"jobset": "jobset.json"})
    assert "jobset 0.12.0: works" in admin("up")
    main = {"name": "main", "image": images.reference("python"), "imagePullPolicy": "IfNotPresent", "command": ["true"]}
    pod = {"containers": [main]}
    kubectl("apply", "-f", "-", text=json.dumps(jobset.job_set("mine", kubectl.options[1].partition("=")[2], pod)))
    kubectl("wait", "--for=condition=Completed", "jobset/mine", "--timeout=90s")

    # The certificate that the controller wrote into its webhooks is not taken away by a second `up`.
    assert "jobset 0.12.0: nothing to do" in admin("up")
    assert "kept: jobsets.jobset.x-k8s.io with 1 object of users" in admin("down", "--yes")
    kubectl("delete", "jobset", "mine")
    admin("down", "--yes")
    with Client.open(environment={"KUBECONFIG": str(cluster.kubeconfig)}) as client:
        assert client.find(CRD, "jobsets.jobset.x-k8s.io") is None
