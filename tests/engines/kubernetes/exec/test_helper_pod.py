"""Helper pods on a real cluster: in strict namespaces, beside a claim in use, and gone when it is done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError, NotFound
from longboat.core.jobs import Job, Role, Volume
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.exec.helper_pod import LIFE_S, HelperMounts, HelperPod, claims_of, pod_spec, trouble_of
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.manifests.volumes import pod_volumes
from longboat.engines.kubernetes.records import State, Storage
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, NAMESPACE, POD
from tests.engines.kubernetes.exec.test_pod_exec import contents, make_tree
from tests.engines.kubernetes.speaking import IMAGE, claim, record_of, speak, until, until_running, vouch


def helper_pods(client: Client) -> list[str]:
    return [pod["metadata"]["name"] for pod in client.list(POD, labels=f"{names.KIND}=helper").items]


def test_a_helper_pod_mounts_lasting_volumes_at_the_runs_paths() -> None:
    volumes = (
        Volume(target="/data", claim="data"),
        Volume(target="tmp", scratch=True),
        Volume(target="shared", nfs="files:/x"),
    )
    job = Job(name="train", roles=(Role(name="worker", run="true"),), ends=("worker",), volumes=volumes)
    found = HelperMounts.of_run(record_of("ns", job=job, storage=Storage(claim="keep")))
    assert [mount["mountPath"] for mount in found.mounts] == ["/data", "/longboat/volumes/2", "/longboat/storage"]
    assert found.claims == {"data", "keep"}
    some = HelperMounts.of_run(record_of("ns", job=job, storage=Storage(claim="keep")), ["/data/x", "/database"])
    assert (some.claims, [volume["name"] for volume in some.volumes]) == ({"data"}, ["volume-0"])
    assert claims_of({"spec": pod_spec(IMAGE, "restricted", found)}) == {"data", "keep"}


def waiting(reason: str, message: str = "", phase: str = "Pending", **status: Any) -> dict[str, Any]:
    state = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"status": {"phase": phase, "containerStatuses": [state] if reason else [], **status}}


UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]


@pytest.mark.parametrize(
    ("pod", "waited_s", "said"),
    [
        (waiting("ContainerCreating"), 20, ""),
        (waiting("ContainerCreating"), 200, "ContainerCreating"),
        (waiting("ErrImagePull", "not found"), 10, ""),
        (waiting("ImagePullBackOff", "not found"), 60, "ImagePullBackOff: not found"),
        (waiting("InvalidImageName"), 0, "InvalidImageName"),
        (waiting("", conditions=UNSCHEDULED), 10, ""),
        (waiting("", conditions=UNSCHEDULED), 200, "0/1 nodes are available"),
        ({"status": {"phase": "Failed", "message": "evicted"}}, 0, "evicted"),
    ],
)
def test_why_it_does_not_start(pod: dict[str, Any], waited_s: float, said: str) -> None:
    assert trouble_of(pod, waited_s) == said


@pytest.mark.pods
def test_a_tree_and_a_large_file_there_and_back(client: Client, namespace: str, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "large").write_bytes(os.urandom(50 << 20))
    with HelperPod(client, Storage(path=f"/var/lib/{namespace}"), image=IMAGE) as helper:
        helper.copy_in(tree, "/longboat/storage/there/kept")
        helper.copy_out("/longboat/storage/there/kept", tmp_path / "back")
        assert contents(tmp_path / "back") == contents(tree)
        helper.copy_out("/longboat/storage/there/kept/bin/go", tmp_path)
        assert (tmp_path / "go").read_text() == "#!/bin/sh\n"
        assert helper.run(["sh", "-c", "cat /longboat/storage/there/kept/bin/go; exit 3"])[:2] == (3, b"#!/bin/sh\n")
        helper.remove("/longboat/storage/there")
        assert helper.names("/longboat/storage") == []
        with pytest.raises(NotFound):
            helper.copy_out("/longboat/storage/there", tmp_path / "nothing")
        assert not (tmp_path / "nothing").exists()
        assert list(tmp_path.glob(".longboat-*")) == []
        body = client.get(POD, helper.pod)
        assert body["spec"]["activeDeadlineSeconds"] == LIFE_S
        assert body["spec"]["automountServiceAccountToken"] is False
    until("it is gone", lambda: helper_pods(client) == [])


@pytest.mark.pods
def test_in_a_namespace_that_enforces_restricted(client: Client, namespace: str) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    client.patch(NAMESPACE, namespace, label)
    mounts = HelperMounts(
        volumes=[{"name": "storage", "emptyDir": {}}], mounts=[{"name": "storage", "mountPath": "/s"}]
    )
    for security in (None, "restricted"):
        with HelperPod(client, mounts, image=IMAGE, security=security) as helper:  # type: ignore[arg-type]
            helper.put("/s/folder/file", open(__file__, "rb"))
            assert b"".join(helper.cat("/s/folder/file")) == Path(__file__).read_bytes()
            assert helper.run(["id", "-u"])[1] == b"1000\n"
    with pytest.raises(EngineError, match="PodSecurity"):
        HelperPod(client, mounts, image=IMAGE, security="baseline").__enter__()
    until("they are gone", lambda: helper_pods(client) == [])


@pytest.mark.pods
def test_it_goes_with_its_run_and_old_ones_are_swept(client: Client, namespace: str) -> None:
    record = record_of(namespace, storage=Storage(path=f"/var/lib/{namespace}"))
    owner = client.create(objects.record_object(record, State()))
    (volume,) = (one for one in pod_volumes(record)[0] if "emptyDir" not in one)
    vouch(client, {key: value for key, value in volume.items() if key != "name"})
    helper = HelperPod.of_run(client, record).__enter__()
    meta = client.get(POD, helper.pod)["metadata"]
    assert meta["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert (meta["labels"][names.RUN], meta["labels"][names.MANAGED_BY]) == ("train", "longboat")
    client.delete(CONFIG_MAP, "train")
    until("it went with its run", lambda: helper_pods(client) == [])

    old = HelperPod(client, Storage(path=f"/var/lib/{namespace}"), image=IMAGE).__enter__()
    client.patch(POD, old.pod, {"spec": {"activeDeadlineSeconds": 1}})
    until("it ended by itself", lambda: client.get(POD, old.pod)["status"]["phase"] == "Failed")
    with HelperPod(client, Storage(path=f"/var/lib/{namespace}"), image=IMAGE):
        assert old.pod not in helper_pods(client)
    until("all are gone", lambda: helper_pods(client) == [])


@pytest.mark.pods
def test_an_image_that_cannot_be_pulled_is_an_error(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longboat.engines.kubernetes.exec.helper_pod.PULL_S", 0.0)
    with pytest.raises(EngineError, match="ErrImage|ImagePull"):
        HelperPod(client, Storage(path=f"/var/lib/{namespace}"), image="longboat.test/none:latest").__enter__()
    until("it is gone", lambda: helper_pods(client) == [])


@pytest.mark.pods
def test_a_claim_in_use_is_read_on_the_machine_that_has_it(client: Client) -> None:
    with claim(client, "data"):
        with HelperPod(client, Storage(claim="data"), image=IMAGE) as helper:
            assert "affinity" not in client.get(POD, helper.pod)["spec"]
        source = {"persistentVolumeClaim": {"claimName": "data"}}
        speak(client, 'open("/longboat/storage/file", "w").write("x"); time.sleep(600)', storage=source)
        (pod,) = until_running(client)
        with HelperPod(client, Storage(claim="data"), image=IMAGE) as helper:
            until("the file is there", lambda: helper.names("/longboat/storage") == ["file"])
            affinity = client.get(POD, helper.pod)["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pod.host]}]}
