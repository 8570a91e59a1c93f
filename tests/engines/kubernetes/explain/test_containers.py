"""What kubelets and registries say about images and containers, in plain words: messages as they are really written."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes.explain.containers import container_trouble, pull_trouble, trouble_of

PULLS = [
    ("no match for platform in manifest: not found", "processor of the node", True),
    ("failed to extract layer: write /var/lib/x: no space left on device", "disk is full", False),
    ("toomanyrequests: You have reached your pull rate limit.", "too many requests", False),
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "certificate", True),
    ("unexpected status from HEAD request: 502 Bad Gateway", "an error of its own", False),
    ("pull access denied, repository does not exist or may require authorization", "not authorised", True),
    ("failed to authorize: failed to fetch anonymous token: 403 Forbidden", "not authorised", True),
    ("failed to resolve reference: registry.org/a:b: not found", "no image of this name and tag", True),
    ("manifest unknown", "no image of this name and tag", True),
    ("dial tcp: lookup registry.org: no such host", "registry registry.org cannot be reached", False),
    ("dial tcp 10.0.0.1:443: i/o timeout", "registry registry.org cannot be reached", False),
    ('Back-off pulling image "registry.org/a:b"', "the node tries again", False),
    ("something else: entirely", "it could not be pulled (something else: entirely)", False),
]


@pytest.mark.parametrize(("message", "words", "is_final"), PULLS, ids=[row[0][:30] for row in PULLS])
def test_pulls(message: str, words: str, is_final: bool) -> None:
    found = pull_trouble("ErrImagePull", message, "registry.org/a:b")
    assert words in found.what and found.what.startswith("image registry.org/a:b: ")
    assert found.is_final is is_final and found.hint and found.cause == "image"


@pytest.mark.parametrize(
    ("image", "host"), [("a", "docker.io"), ("team/a", "docker.io"), ("localhost:5000/a", "localhost:5000")]
)
def test_the_registry_of_an_image(image: str, host: str) -> None:
    assert f"the registry {host} cannot" in pull_trouble("ErrImagePull", "connection refused", image).what


CONTAINERS = [
    ('exec: "python3": executable file not found in $PATH', "no python3", True),
    ("exec /usr/bin/python3: exec format error", "another processor", True),
    ("couldn't find key token in Secret team/keys", "Secret team/keys has no key token", False),
    ("container has runAsNonRoot and image will run as root", "runs as root", True),
    ("failed to create shim: something odd", "could not be started (failed to create shim: something odd)", False),
]


@pytest.mark.parametrize(("message", "words", "is_final"), CONTAINERS, ids=[row[0][:30] for row in CONTAINERS])
def test_containers(message: str, words: str, is_final: bool) -> None:
    found = container_trouble("CreateContainerError", message)
    assert words in found.what and found.is_final is is_final


def test_a_pod_in_back_off_is_explained_by_its_event() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "a"'}
    pod = {
        "spec": {"containers": [{"name": "main", "image": "a"}]},
        "status": {"containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]},
    }
    events = [{"reason": "Failed", "message": 'Failed to pull image "a": manifest unknown'}]
    found = trouble_of(pod, events)
    assert found is not None and "no image of this name" in found.what
    creating = {"status": {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}}
    assert trouble_of(creating) is None
