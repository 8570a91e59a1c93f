"""Security contexts of pods and containers that a namespace's Pod Security level accepts. Pure."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

USER = 1000
"""Whom a run's pods run as at the restricted level, which asks for any user but root."""


def pod_security(level: str) -> Object:
    """Security context of a run's pods and helper pods: the restricted level's, else the image's own user."""
    if level != "restricted":
        return {"seccompProfile": {"type": "RuntimeDefault"}}
    return {**unprivileged(USER), "fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"}


def unprivileged(user: int) -> Object:
    """The least that the restricted level asks of a pod."""
    return {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
    }


def container_security(level: str) -> Object | None:
    """Security context of a container at the restricted level; None at any other."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}} if level == "restricted" else None
