"""Draining a node by the eviction API: budgets and grace periods are the cluster's to keep. What must stay stops it."""

from __future__ import annotations

import msgspec

from longboat.autoscaler.act.pre_delete_check import kept, name_of, pods_on
from longboat.autoscaler.model.snapshot import CORDONED, AutoscalerSettings
from longboat.autoscaler.observe.orders import DELETING
from longboat.kubeapi.client import Client, Object
from longboat.kubeapi.connection.transport import ApiRequest
from longboat.kubeapi.errors import ApiError, Conflict, ObjectNotFound
from longboat.kubeapi.kinds import POD

BUDGET_STATUS = 429  # the eviction API's answer when a PodDisruptionBudget forbids it now


class Evictions:
    def __init__(self, client: Client, settings: AutoscalerSettings) -> None:
        self._client, self._settings = client, settings

    def drain(self, body: Object, now: float) -> str:
        """Evict all pods of a node with our cordon, or none: one that must stay keeps all of them."""
        annotations = body["metadata"].get("annotations") or {}
        if not (body.get("spec") or {}).get("unschedulable") or CORDONED not in annotations or DELETING in annotations:
            return "our cordon was lifted"
        pods = pods_on(self._client, body["metadata"]["name"])
        for pod in pods:
            reason = "" if self._is_expendable(pod) else kept(pod, now)
            if reason:
                return f"pod {name_of(pod)} stays: {reason}"
        troubles = [self._evict(pod) for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        return "; ".join(text for text in troubles if text)

    def _is_expendable(self, pod: Object) -> bool:
        return int((pod.get("spec") or {}).get("priority") or 0) < self._settings.expendable_below

    def _evict(self, pod: Object) -> str:
        meta = pod["metadata"]
        wanted = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        path = self._client.path(POD, meta["namespace"], meta["name"], "eviction")
        headers = {"Content-Type": "application/json"}
        try:
            # Not repeated inside: a budget that has no room answers like an overloaded server.
            body, left_s = msgspec.json.encode(wanted), self._client.left_s
            ask = ApiRequest("POST", path, headers, body, may_repeat=False, total_s=0.0, left_s=left_s)
            self._client.transport.request(ask)
        except (ObjectNotFound, Conflict):
            return ""
        except ApiError as error:
            if error.status != BUDGET_STATUS:
                raise
            return f"pod {name_of(pod)} is not evicted yet: {error.message}"
        return ""
