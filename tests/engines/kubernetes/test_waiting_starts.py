"""Pods that have a node and do not start: images, containers, volumes, peers. Without a node: test_waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.engines.kubernetes.explain.containers import StartTrouble, trouble_of
from longboat.kubeapi import kinds
from testbed import binaries
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.registry import Registry, write_new_image
from tests.engines.kubernetes.broken import IMAGE, apply, opened, pod, trouble, until


@pytest.mark.pods
class TestImages:
    """Pulls from a registry that behaves as registries do."""

    def image(self, registry: Registry, folder: Path) -> str:
        program = Path(binaries.find(("tools",))["pause"])
        return registry.add("fresh", write_new_image(folder / "fresh.tar", program, registry.host.encode() * 64))

    def test_not_found(self, cluster: Cluster, namespace: str, kubectl: Kubectl, registry: Registry) -> None:
        image = f"{registry.host}/no-such-image:latest"
        apply(kubectl, pod("absent", image=image))
        with opened(cluster, namespace) as client:
            told = trouble(client, "absent", f"worker-0: image {image}: the registry has no image of this name and tag")
        assert told.is_final and told.cause == "image"

    @pytest.mark.parametrize(
        ("status", "words", "is_final"),
        [(401, "not authorised", True), (500, "an error of its own", False), (429, "too many requests", False)],
    )
    def test_refused(
        self,
        cluster: Cluster,
        namespace: str,
        kubectl: Kubectl,
        registry: Registry,
        status: int,
        words: str,
        is_final: bool,
    ) -> None:
        registry.refuse(status)
        apply(kubectl, pod("refused", image=f"{registry.host}/private:latest"))
        with opened(cluster, namespace) as client:
            assert trouble(client, "refused", words).is_final is is_final

    def test_unreachable(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        apply(kubectl, pod("nowhere", image="registry.invalid/some/image:1"))
        with opened(cluster, namespace) as client:
            told = trouble(client, "nowhere", "the registry registry.invalid cannot be reached from the node")
        assert not told.is_final

    def test_an_invalid_image_name(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        apply(kubectl, pod("odd", image="UPPER/Case"))
        with opened(cluster, namespace) as client:
            assert trouble(client, "odd", "this is not a name of an image").is_final

    def test_a_long_pull_is_reported(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, registry: Registry, tmp_path: Path
    ) -> None:
        image = self.image(registry, tmp_path)
        registry.hang("blobs")
        apply(kubectl, pod("slow", ["/program"], image=image))
        with opened(cluster, namespace) as client:
            told = trouble(client, "slow", f"has been pulling image {image} for ")
        assert told.what.startswith("worker-0: node node-0") and told.what.endswith(" s")
        registry.restore()


@pytest.mark.pods
class TestContainers:
    def test_no_python_in_the_image(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        apply(kubectl, pod("bare", ["python3", "-V"], image="longboat.test/pause:latest"))
        with opened(cluster, namespace) as client:

            def told() -> StartTrouble | None:
                return trouble_of(client.get(kinds.POD, "bare"))

            found = until("the container cannot start", told)
        assert "no python3" in found.what and found.cause == "image" and found.is_final

    def test_a_secret_that_is_not_there(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "key"}}}]
        apply(kubectl, pod("keyless", env=env))
        with opened(cluster, namespace) as client:
            trouble(client, "keyless", "worker-0: it needs the secret absent, which does not exist")

    def test_a_volume_that_cannot_be_mounted(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        volumes = [{"name": "keys", "secret": {"secretName": "absent"}}]
        apply(kubectl, pod("mountless", volumes=volumes, volumeMounts=[{"name": "keys", "mountPath": "/keys"}]))
        with opened(cluster, namespace) as client:
            trouble(client, "mountless", "a volume cannot be mounted on node-0", '"absent" not found')

    def test_root_where_none_may_be(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        apply(kubectl, pod("root", securityContext={"runAsNonRoot": True}))
        with opened(cluster, namespace) as client:
            assert trouble(client, "root", "the image runs as root").is_final

    def test_peers_that_cannot_be_reached(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        apply(kubectl, pod("lonely", ["python3", "-c", "import time; time.sleep(600)"], image=IMAGE))
        with opened(cluster, namespace) as client:
            missing = {"worker-1": ("worker-0",)}
            told = trouble(client, "lonely", "worker-1 wait for worker-0", "cannot be reached", missing=missing)
        assert "NetworkPolicy" in (told.hint or "")
        kubectl("delete", "pod", "lonely", "--now")
