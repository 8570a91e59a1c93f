"""Takes a control plane that is lost out of etcd, which counts it as a member until somebody says that it is gone.

`kubeadm reset` does that on the host itself, as long as there is one. Asked by etcd's own HTTP interface, with kubectl:
no other program is needed, neither on the host nor in the image of etcd.
"""

from __future__ import annotations

import json
from typing import Any

from longboat.clusters.apply.answers import answered
from longboat.clusters.hosts.connection import CommandFailed, HostConnection, check
from longboat.core.errors import EngineError

WITHIN_S = 60.0  # the others elect a leader within seconds of its death; without a majority nothing helps
_PKI = "/etc/kubernetes/pki"
_POST = (
    "env KUBECONFIG=/dev/null kubectl --server=https://127.0.0.1:2379 --request-timeout=10s"
    f" --certificate-authority={_PKI}/etcd/ca.crt --client-certificate={_PKI}/apiserver-etcd-client.crt"
    f" --client-key={_PKI}/apiserver-etcd-client.key create --raw /v3/cluster/member/%s -f -"
)
LIST_MEMBERS = f"printf {{}} | {_POST % 'list'}"
"""A script that prints them as JSON, on a control plane."""


def remove_member(control: HostConnection, name: str) -> bool:
    """Remove the member of the node `name`; False: there is none. Raises EngineError when etcd refuses.

    Members that have never started have no name yet: kubeadm goes on with these.
    """
    try:
        return answered(lambda: _remove(control, name), WITHIN_S)
    except CommandFailed as error:
        raise EngineError(
            f"{name} cannot be taken out of etcd: {error.message}",
            hint="most of its members must be there: bring another control plane back, then the same command again",
        ) from None


def _remove(control: HostConnection, name: str) -> bool:
    ids = [str(member["ID"]) for member in _members(control) if member["name"] == name]
    for identity in ids:
        check(control, _POST % "remove", stdin=json.dumps({"ID": identity}).encode())
    return bool(ids)


def _members(control: HostConnection) -> list[dict[str, Any]]:
    try:
        return members_of(check(control, LIST_MEMBERS))
    except ValueError:
        raise EngineError(f"{control.name}: etcd's list of members is not understood") from None


def members_of(text: str) -> list[dict[str, Any]]:
    """Members out of what the script prints. Raises ValueError."""
    try:
        members: list[dict[str, Any]] = json.loads(text)["members"]
        return [{**member, "ID": int(member["ID"]), "name": str(member.get("name", ""))} for member in members]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
