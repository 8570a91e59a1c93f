"""The autoscaler's rights in a project: a custom role, and its binding to the service account in the cluster.

By workload identity. Google knows service accounts of GKE by namespace and name, in all clusters of a project alike, or
by their uid: that is bound, so that whoever makes the same namespace in another cluster has no right. The role's id has
the cluster's name only: clusters of one name in several regions share it.
"""

from __future__ import annotations

import time
from typing import Any

from longboat.clouds.gcp.errors import answer_error, explained
from longboat.clouds.gcp.session import GoogleSession
from longboat.clouds.rest import Body, RestFault
from longboat.clusters.cloud.gcp.permissions import autoscaler_role
from longboat.clusters.cloud.gcp.request import workload_pool
from longboat.core.errors import EngineError

ATTEMPTS = 5  # of a change of the project's policy that meets somebody else's
PAUSE_S = 1.0  # longer each time: two who meet once do not meet again
POLICY_VERSION = 3
"""With conditions: a policy that is written back without them would lose them."""


class GoogleAutoscalerRights:
    """Raises LongboatError with Google's words."""

    def __init__(self, session: GoogleSession, project: str, cluster: str) -> None:
        self._session, self._project = session, project
        self._role = autoscaler_role(cluster)
        self._path = f"projects/{project}/roles/{self._role.id}"

    def give(self, account_uid: str) -> bool:
        """To this service account, and to none by its name. False: it had them."""
        changed = self._make_role()
        with explained("see the project"):
            number = str(self._session.projects("GET", f"projects/{self._project}").get("name") or "")
        accounts = (
            f"principal://iam.googleapis.com/{number}/locations/global/workloadIdentityPools/"
            f"{workload_pool(self._project)}/kubernetes.serviceaccount.uid/"
        )
        return self._change_policy(lambda bindings: _bound_to(bindings, self._path, accounts, account_uid)) or changed

    def take_back(self) -> None:
        """The binding, then the role: Google keeps a deleted role's name for a while, and `give` takes it up again."""
        role = self._find_role()
        if role is None or role.get("deleted"):
            return
        self._change_policy(lambda bindings: [each for each in bindings if each.get("role") != self._path])
        with explained(f"delete the role {self._role.id}"):
            self._session.iam("DELETE", self._path)

    def _make_role(self) -> bool:
        role, wanted = self._find_role(), self._role.document()
        with explained(f"make the role {self._role.id}"):
            if role is None:
                body = {"roleId": self._role.id, "role": wanted}
                self._session.iam("POST", f"projects/{self._project}/roles", body)
                return True
            if role.get("deleted"):
                self._session.iam("POST", f"{self._path}:undelete", {})
            if sorted(role.get("includedPermissions") or ()) != wanted["includedPermissions"]:
                self._session.iam("PATCH", self._path, wanted)
                return True
        return bool(role.get("deleted"))

    def _find_role(self) -> Body | None:
        try:
            return self._session.iam("GET", self._path)
        except RestFault as fault:
            if fault.status == 404:
                return None
            raise answer_error(fault, f"see the role {self._role.id}") from None

    def _change_policy(self, change: Any) -> bool:
        """Read, change, write with the mark of what was read: whoever else changes it loses nothing."""
        for attempt in range(ATTEMPTS):
            with explained("see the project's policy"):
                options = {"options": {"requestedPolicyVersion": POLICY_VERSION}}
                policy = self._session.projects("POST", f"projects/{self._project}:getIamPolicy", options)
            before = policy.get("bindings") or []
            after = change(before)
            if after == before:
                return False
            body = {"policy": {**policy, "bindings": after, "version": POLICY_VERSION}}
            try:
                self._session.projects("POST", f"projects/{self._project}:setIamPolicy", body)
                return True
            except RestFault as fault:
                if fault.status != 409:
                    raise answer_error(fault, "change the project's policy") from None
            time.sleep(PAUSE_S * attempt)
        raise EngineError("the project's policy is changed by others all the time", hint="the same command again")


def _bound_to(bindings: list[Body], role: str, accounts: str, uid: str) -> list[Body]:
    """With this account beside those of other clusters. A former one stays too: no other ever has its uid."""
    mine = [each for each in bindings if each.get("role") == role]
    others = {member for each in mine for member in each.get("members") or () if member.startswith(accounts)}
    wanted = {"role": role, "members": sorted({*others, accounts + uid})}
    if len(mine) == 1 and {**mine[0], "members": sorted(mine[0].get("members") or ())} == wanted:
        return bindings
    return [*(each for each in bindings if each.get("role") != role), wanted]
