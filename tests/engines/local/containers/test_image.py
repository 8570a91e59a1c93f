"""Names of images, the progress of a pull, and why one failed: in words, from what podman and docker say."""

from __future__ import annotations

import pytest

from longboat.engines.local.containers.image import full_name, progress, pull_message, start_message


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python:3.12", "docker.io/library/python:3.12"),
        ("pytorch/pytorch:2.9", "docker.io/pytorch/pytorch:2.9"),
        ("docker.io/library/python", "docker.io/library/python"),
        ("ghcr.io/me/train@sha256:0", "ghcr.io/me/train@sha256:0"),
        ("localhost/mine", "localhost/mine"),
        ("registry:5000/mine", "registry:5000/mine"),
    ],
)
def test_a_name_without_a_registry_means_docker_hub(image: str, full: str) -> None:
    assert full_name(image) == full


PODMAN = """Trying to pull docker.io/library/python:3.12...
Getting image source signatures
Copying blob sha256:82719d6bd11d12f26aaaa63e70bbf106e965768a098aa3be4d9b5f7de18f5795
Copying blob 26d4f6c7cd07 done
Copying config sha256:26d4f6c7cd07da12c25e5623c5fc951dfce4556164e868f590f3feade535f006
"""
DOCKER = """3.12: Pulling from library/python
82719d6bd11d: Pulling fs layer
26d4f6c7cd07: Already exists
82719d6bd11d: Download complete
aaaaaaaaaaaa: Pulling fs layer
"""


def test_progress_counts_layers() -> None:
    assert progress("Trying to pull ...\n") == ""
    assert progress(PODMAN) == "2 layers"
    assert progress(DOCKER) == "1 of 3 layers"
    assert progress(DOCKER + "82719d6bd11d: Pull complete\naaaaaaaaaaaa: Pull complete\n") == "3 of 3 layers"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("Error: initializing source: reading manifest 9 in r.io/x: manifest unknown", "no image of this name and tag"),
        ("Error: pinging container registry r.io: Get: dial tcp: lookup r.io: no such host", "r.io cannot be reached"),
        ("requested access to the resource is denied", "log in"),
        ("write /var/lib: no space left on device", "disk is full"),
        ("toomanyrequests: You have reached your pull rate limit", "too many requests"),
        ("Error: something else: went wrong", "something else: went wrong"),
    ],
)
def test_why_a_pull_failed(said: str, message: str) -> None:
    told = pull_message("r.io/x:9", f"Trying to pull r.io/x:9...\n{said}\n")
    assert message in told and told.startswith("image r.io/x:9: ") and "\n" not in told


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("Error: crun: executable file `python3` not found in $PATH: No such file or directory", "has no python3"),
        ('exec: "python3": executable file not found in $PATH', "has no python3"),
        ("SyntaxError: future feature annotations is not defined", "is too old"),
        ("exec /usr/bin/python3: exec format error", "another processor"),
        ("Error: crun: cgroups in hybrid mode not supported", "cgroups in hybrid mode not supported"),
        ("", "exit code 125"),
    ],
)
def test_why_a_container_did_not_start(said: str, message: str) -> None:
    assert message in start_message("busybox", 125, said.splitlines())
