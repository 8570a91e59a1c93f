"""The cluster's API, as far as the testbed itself needs it: read, create, apply, delete, wait.

Over the standard library, because starting kubectl costs more than the whole request. Not a client for tests: those use
kubectl or Longboat's own.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

from testbed.clusters import Cluster
from testbed.errors import Hopeless, TestbedError

Object = dict[str, Any]
MANAGER = "longboat-testbed"
PLURALS = {"ResourceFlavor": "resourceflavors", "NetworkPolicy": "networkpolicies", "EndpointSlice": "endpointslices"}
UNBOUND = {
    "Namespace", "Node", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PersistentVolume",
    "PriorityClass", "StorageClass", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
    "RuntimeClass", "APIService", "ClusterQueue", "ResourceFlavor",
}  # fmt: skip


class Refused(TestbedError):
    """The API answered with an error."""

    def __init__(self, status: int, method: str, path: str, body: str) -> None:
        try:
            message = json.loads(body).get("message", body)
        except (ValueError, AttributeError):
            message = body
        super().__init__(f"{method} {path}: {status} {message[:500]}")
        self.status = status


def path_of(kind: str, api_version: str, namespace: str | None = None, name: str = "") -> str:
    """Where objects of this kind live."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    plural = PLURALS.get(kind) or (kind.lower() + ("es" if kind.endswith(("s", "x")) else "s"))
    if kind.endswith("y") and kind not in PLURALS:
        plural = kind.lower()[:-1] + "ies"
    place = "" if kind in UNBOUND else f"/namespaces/{namespace or 'default'}"
    return f"{root}{place}/{plural}" + (f"/{urllib.parse.quote(name)}" if name else "")


def path_of_object(item: Object) -> str:
    meta = item["metadata"]
    return path_of(item["kind"], item["apiVersion"], meta.get("namespace"), meta["name"])


class Api:
    """One connection, opened when needed and again when it broke. Not for several threads."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = 30.0) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self._connection: http.client.HTTPSConnection | None = None
        self._context: ssl.SSLContext | None = None

    def _open(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            if self._context is None:
                self._context = ssl.create_default_context(cafile=str(self.cluster.pki / "ca.crt"))
                pair = (str(self.cluster.pki / f"admin{end}") for end in (".crt", ".key"))
                self._context.load_cert_chain(*pair)
            self._connection = http.client.HTTPSConnection(
                self.cluster.address, self.cluster.ports["apiserver"], timeout=self.timeout_s, context=self._context
            )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def text(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> str:
        """The answer's body; `Refused` for any status of 400 and above."""
        connection = self._open()
        sent = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, sent, {"Content-Type": content_type, "Accept": "application/json, */*"})
            answer = connection.getresponse()
            content = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TestbedError(f"{method} {path}: the API does not answer: {error}") from error
        if answer.status >= 400:
            raise Refused(answer.status, method, path, content)
        return content

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Object:
        answer: Object = json.loads(self.text(method, path, body, content_type) or "{}")
        return answer

    def get(self, path: str) -> Object | None:
        try:
            return self.call("GET", path)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        items: list[Object] = self.call("GET", path)["items"]
        return items

    def create(self, item: Object) -> Object:
        return self.call("POST", path_of_object(item).rpartition("/")[0], item)

    def apply(self, items: Iterable[Object]) -> None:
        """Server-side apply: afterwards the objects are there as given, as often as it is done."""
        for item in items:
            path = f"{path_of_object(item)}?fieldManager={MANAGER}&force=true"
            self.call("PATCH", path, item, "application/apply-patch+yaml")

    def merge(self, path: str, change: Object) -> Object:
        return self.call("PATCH", path, change, "application/merge-patch+json")

    def delete(self, path: str, *, grace_s: int | None = None) -> bool:
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            self.call("DELETE", path, {**options, "propagationPolicy": "Background"})
        except Refused as error:
            if error.status != 404:
                raise
            return False
        return True

    def is_ready(self) -> bool:
        try:
            return self.text("GET", "/readyz") == "ok"
        except TestbedError:
            return False


def wait_for(condition: str, holds: Callable[[], bool], within_s: float, *, every_s: float = 0.05) -> None:
    """Return as soon as it holds; an API that does not answer for a moment is waited for as well."""
    deadline = time.monotonic() + within_s
    trouble = ""
    while True:
        try:
            if holds():
                return
        except Hopeless:
            raise
        except TestbedError as error:
            trouble = f" ({error})"
        if time.monotonic() > deadline:
            raise TestbedError(f"waited {within_s:.0f} s in vain: {condition}{trouble}")
        time.sleep(every_s)
