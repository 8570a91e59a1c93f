"""Image pull and container start errors, translated into messages for users. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from longboat.core.jobs import Value
from longboat.engines.shared.containers.image_errors import is_without_python, last_part, pull_error, registry_of

IMAGE_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
CONTAINER_REASONS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError")


class StartTrouble(Value, frozen=True):
    """One thing that keeps a run from starting, or that ended it: what, and what to do about it."""

    what: str
    hint: str | None = None
    cause: str | None = None  # one of jobs.CAUSES, where it is clear
    is_final: bool = False  # waiting will not mend it: somebody must change something


def pull_trouble(reason: str, message: str, image: str) -> StartTrouble:
    """Why an image cannot be pulled. `message` may be that of the container's state or of the pod's event."""
    problem, hint, is_final = _named(reason) or _refused(message) or _unreached(message, image)
    name = f"image {image}" if image else "the image"
    return StartTrouble(what=f"{name}: {problem}", hint=hint, cause="image", is_final=is_final)


def _named(reason: str) -> tuple[str, str, bool] | None:
    """What the kubelet itself has a name for."""
    return {
        "InvalidImageName": ("this is not a name of an image", "correct `image`", True),
        "ErrImageNeverPull": ("it is not on the node, and may not be pulled", "put it on every node", True),
        "SignatureValidationFailed": ("its signature is not accepted on the node", "sign it, or see the policy", True),
    }.get(reason)


def _refused(message: str) -> tuple[str, str, bool] | None:
    """The registry, or the node, says why."""
    return {
        "platform": ("it does not exist for the processor of the node", "build it for the nodes' architecture", True),
        "disk": ("the node's disk is full", "free space on the node, or take a smaller image", False),
        "busy": (
            "the registry has had too many requests and refuses for now",
            "log in there, or use a mirror",
            False,
        ),
        "certificate": (
            f"the node does not trust the registry's certificate ({last_part(message)})",
            "see the node's containerd",
            True,
        ),
        "server": (f"the registry has an error of its own ({last_part(message)})", "try again later", False),
        "unauthorised": ("the registry does not let the cluster read it (not authorised)", _PULL_SECRET, True),
        "missing": (
            "the registry has no image of this name and tag",
            "check the spelling of `image`, and its tag",
            True,
        ),
    }.get(pull_error(message))


_PULL_SECRET = (
    "check its spelling; for a private image: `kubectl create secret docker-registry NAME ...`, "
    "then `longboat config set kubernetes.pull_secrets [NAME]`"
)


def _unreached(message: str, image: str) -> tuple[str, str, bool]:
    if pull_error(message) == "unreachable":
        hint = "check the name, and whether nodes may reach it (proxy, firewall)"
        return f"the registry {registry_of(image)} cannot be reached from the node ({last_part(message)})", hint, False
    if "back-off pulling" in message.lower() or not message:
        return "it could not be pulled, the node tries again", "`longboat explain` has more", False
    return f"it could not be pulled ({last_part(message)})", "check `image`", False


def container_trouble(reason: str, message: str) -> StartTrouble:
    """Why a container that has its image cannot be created or started."""
    text = message.lower()
    if is_without_python(message):
        return StartTrouble(
            what="the image has no python3, which the launcher needs",
            hint="use an image with Python 3.8 or newer (any `python:3...` image, or your framework's own)",
            cause="image",
            is_final=True,
        )
    missing = re.search(r'(secret|configmap) "([^"]+)" not found', message)
    if missing:
        kind, name = missing.groups()
        hint = f"create {kind} {name} in the run's namespace"
        return StartTrouble(what=f"it needs the {kind} {name}, which does not exist", hint=hint, is_final=False)
    key = re.search(r"couldn't find key (\S+) in (Secret|ConfigMap) (\S+)", message)
    if key:
        return StartTrouble(what=f"{key[2]} {key[3]} has no key {key[1]}", hint="add the key")
    if "runasnonroot" in text:
        problem = "the image runs as root, and the pod may not (runAsNonRoot)"
        return StartTrouble(
            what=problem, hint="use an image with a numeric user, or another namespace", cause="image", is_final=True
        )
    if "exec format error" in text:
        problem = "the image is made for another processor than the node's"
        return StartTrouble(what=problem, hint="build it for the nodes' architecture", cause="image", is_final=True)
    return StartTrouble(what=f"the container could not be started ({last_part(message) or reason})", cause="image")


def trouble_of(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> StartTrouble | None:
    """What keeps the containers of a pod from starting; None where nothing does."""
    status = pod.get("status") or {}
    spec = pod.get("spec") or {}
    images = {container.get("name"): str(container.get("image") or "") for container in spec.get("containers") or ()}
    images.update(
        {container.get("name"): str(container.get("image") or "") for container in spec.get("initContainers") or ()}
    )
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in states:
        state = container.get("state") or {}
        reported = state.get("waiting") or state.get("terminated") or {}
        reason, message = str(reported.get("reason") or ""), str(reported.get("message") or "")
        if reason in IMAGE_REASONS:
            return pull_trouble(reason, _pull_message(message, events), images.get(container.get("name"), ""))
        if reason in CONTAINER_REASONS or reason == "ContainerCannotRun":
            return container_trouble(reason, message)
    return None


def _pull_message(message: str, events: Iterable[Mapping[str, Any]]) -> str:
    """A pod in backoff has forgotten why; its event remembers."""
    if message and "back-off" not in message.lower():
        return message
    messages = [
        str(event.get("message") or "")
        for event in events
        if event.get("reason") == "Failed" and "pull image" in str(event.get("message") or "")
    ]
    return messages[-1] if messages else message
