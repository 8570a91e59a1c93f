"""A cluster in GKE by its name: looked at, made, changed, deleted, and followed pool by pool. Decides nothing."""

from __future__ import annotations

import re
import time

import msgspec

from longboat.clouds.gcp.errors import answer_error, explained
from longboat.clouds.gcp.session import GoogleSession
from longboat.clouds.rest import Body, RestFault, fault_of
from longboat.clusters.cloud.aws.stack import Listen, ResourceEvent, ResourceState
from longboat.clusters.cloud.gcp.autoscaler_rights import GoogleAutoscalerRights
from longboat.clusters.cloud.gcp.cluster_view import GkeView, NodePoolView, read_cluster_view
from longboat.clusters.cloud.gcp.decide import GkeStep
from longboat.clusters.cloud.gcp.leftovers import GoogleLeftovers
from longboat.core.errors import EngineError, Refused

LOOKS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Between two looks: GKE takes five minutes and more."""
BUSY_STATES = ("PENDING", "RUNNING", "ABORTING")
_STATES: dict[str, ResourceState] = {"RUNNING": "done", "ERROR": "failed", "RUNNING_WITH_ERROR": "failed"}
_VERBS = {"resize_pool": ":setSize", "limit_pool": ":setAutoscaling"}


class GkeCluster:
    """Raises LongboatError with Google's words."""

    def __init__(self, session: GoogleSession, region: str, name: str) -> None:
        self._session, self.region, self.name = session, region, name
        self.conflict = ""  # why the last request came to nothing, where nobody else does the same
        with explained("look for the project"):
            self.project = session.project()
        if not self.project:
            raise EngineError("no project of Google Cloud is named", hint="set GOOGLE_CLOUD_PROJECT")
        self._place = f"projects/{self.project}/locations/{region}"
        self._path = f"{self._place}/clusters/{name}"

    def rights(self) -> GoogleAutoscalerRights:
        return GoogleAutoscalerRights(self._session, self.project, self.name)

    def leftovers(self) -> GoogleLeftovers:
        return GoogleLeftovers(self._session, self.project, self.region, self.name)

    def look(self, *, with_sizes: bool = False) -> GkeView | None:
        """None: there is no such cluster."""
        try:
            view = read_cluster_view(self._session.container("GET", self._path))
        except RestFault as fault:
            if fault.status == 404:
                return None
            raise answer_error(fault, f"see the cluster {self.name}") from None
        if not with_sizes:
            return view
        pools = tuple(msgspec.structs.replace(pool, size=self._size(pool)) for pool in view.pools)
        return msgspec.structs.replace(view, pools=pools)

    def _size(self, pool: NodePoolView) -> int | None:
        sizes = []
        for address in pool.groups:
            match = re.search(r"/zones/([a-z0-9-]+)/instanceGroupManagers/([a-z0-9-]+)$", address)
            if match is None:
                return None
            path = f"projects/{self.project}/zones/{match[1]}/instanceGroupManagers/{match[2]}"
            with explained("see instance groups"):
                sizes.append(int(self._session.compute("GET", path).get("targetSize") or 0))
        return sum(sizes)

    def versions(self) -> tuple[str, ...]:
        try:
            body = self._session.container("GET", f"{self._place}/serverConfig")
        except RestFault as fault:
            if fault.status in (400, 404):  # it is the first that is asked of a region
                message = f"Google Cloud has no region {self.region}: {fault.message[:300]}"
                raise Refused(message, hint="gcloud compute regions list shows them") from None
            raise answer_error(fault, "see GKE's versions") from None
        return tuple(body.get("validMasterVersions") or ())

    def quotas(self) -> dict[str, float]:
        """Metric -> what is left of it in the region."""
        with explained("see the region's quotas"):
            body = self._session.compute("GET", f"projects/{self.project}/regions/{self.region}")
        return {each["metric"]: each.get("limit", 0) - each.get("usage", 0) for each in body.get("quotas") or ()}

    def has_type(self, zone: str, kind: str) -> bool:
        try:
            self._session.compute("GET", f"projects/{self.project}/zones/{zone}/machineTypes/{kind}")
        except RestFault as fault:
            if fault.status == 404:
                return False
            raise answer_error(fault, "see machine types") from None
        return True

    def begin(self, step: GkeStep) -> Body | None:
        """The operation; None: somebody else has begun, or done, the same."""
        pool = f"{self._path}/nodePools/{step.name}"
        requests = {
            "create_cluster": ("POST", f"{self._place}/clusters", step.body),
            "create_pool": ("POST", f"{self._path}/nodePools", step.body),
            "delete_pool": ("DELETE", pool, None),
            "update_cluster": ("PUT", self._path, step.body),
            "update_pool": ("PUT", pool, step.body),
        }
        method, path, body = requests.get(step.verb) or ("POST", pool + _VERBS.get(step.verb, ""), step.body)
        return self._begin(method, path, body, step.text)

    def delete(self) -> Body | None:
        return self._begin("DELETE", self._path, None, f"delete the cluster {self.name}")

    def _begin(self, method: str, path: str, body: Body | None, words: str) -> Body | None:
        try:
            return self._session.container(method, path, body)
        except RestFault as fault:
            if fault.status == 409 or (method == "DELETE" and fault.status == 404):
                self.conflict = fault.message
                return None
            raise answer_error(fault, f"do this: {words}") from None

    def running(self) -> Body | None:
        """An operation on this cluster that goes on."""
        with explained("see operations"):
            operations = self._session.container("GET", f"{self._place}/operations").get("operations") or ()
        mine = re.compile(rf"/clusters/{re.escape(self.name)}(/|$)")
        for operation in operations:
            if operation.get("status") in BUSY_STATES and mine.search(operation.get("targetLink") or ""):
                return dict(operation)
        return None

    def follow(self, operation: Body, listen: Listen) -> None:
        """Tell what becomes of the cluster and its pools until the operation has ended. Raises EngineError."""
        seen: dict[str, ResourceState] = {}
        turn = 0
        while True:
            with explained("follow an operation"):
                operation = self._session.container("GET", f"{self._place}/operations/{operation['name']}")
            self._tell(seen, listen, is_deleted=operation.get("operationType") == "DELETE_CLUSTER")
            if operation.get("status") == "DONE":
                break
            time.sleep(LOOKS_S[min(turn, len(LOOKS_S) - 1)])
            turn += 1
        if operation.get("error"):
            words = fault_of(200, operation["error"]).message or operation.get("statusMessage") or "it does not say why"
            raise EngineError(
                f"{self.name}: GKE could not do it: {words}", hint="longboat cluster status; the same command goes on"
            )

    def _tell(self, seen: dict[str, ResourceState], listen: Listen, *, is_deleted: bool) -> None:
        view = self.look()
        states = {} if view is None else {self.name: (view.status, view.issue)}
        states |= {pool.name: (pool.status, pool.issue) for pool in view.pools} if view else {}
        for name in [name for name in seen if name not in states]:
            states[name] = ("RUNNING", "")  # it is gone, as it should be
        for name, (status, text) in states.items():
            state = "started" if is_deleted and view is not None else _STATES.get(status, "started")
            if seen.get(name) != state:
                seen[name] = state
                kind = "cluster" if name == self.name else "node pool"
                listen(ResourceEvent(resource=name, type=kind, state=state, at=time.time(), text=text))
