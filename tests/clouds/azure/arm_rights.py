"""Rights on a simulated Azure: which action a request is, and whether roles that were assigned allow it there.

Actions follow from method and path as Azure documents it; a role holds for its scope and all below it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from tests.clouds.simulated_rest import SimulatedRefusal

Assignment = tuple[str, tuple[str, ...]]
"""Scope, and the actions that are allowed there."""
_VERBS = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}


def action_of(method: str, path: str) -> str:
    """`Microsoft.Compute/virtualMachineScaleSets/delete/action` of a POST to `.../virtualMachineScaleSets/x/delete`."""
    head, _, tail = path.rpartition("/providers/")
    if not head:
        words = path.strip("/").split("/")
        kinds = ["Microsoft.Resources", *words[0::2]]
    else:
        namespace, *words = tail.split("/")
        kinds = [namespace, *words[0::2]]
    return "/".join([*kinds, "action" if method == "POST" else _VERBS[method]])


def allows(assignments: Iterable[Assignment], action: str, path: str) -> bool:
    return any(
        (path.lower() == scope.lower() or path.lower().startswith(scope.lower().rstrip("/") + "/"))
        and any(fnmatch.fnmatch(action.lower(), each.lower()) for each in actions)
        for scope, actions in assignments
    )


class ArmRights:
    """Who asks has what is assigned, nothing else."""

    assignments: list[Assignment] | None = None
    """None: everything is allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: list[str] = []
        self.used: set[str] = set()

    def need(self, action: str, path: str) -> None:
        self.used.add(action)
        if self.assignments is not None and not allows(self.assignments, action, path):
            self.denied.append(action)
            words = f"The client does not have authorization to perform action '{action}' over scope '{path}'."
            raise SimulatedRefusal(403, {"code": "AuthorizationFailed", "message": words})

    def need_of(self, method: str, path: str) -> None:
        if path == "/subscriptions":
            return  # everybody is told those of their own
        self.need(action_of(method, re.sub(r"/+$", "", path)), path)
