"""What the accounts of installed parts cannot do: their own manifests on a real API server, and somebody who tries.

Everything is asked with the token of the account. Before a right is looked for, nothing of a request is read, so that
an empty body is enough: what is allowed answers otherwise than 403.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from longboat.clusters.addons.storage import storage_objects
from longboat.engines.kubernetes.install import autoscaler_manifests, controller_manifests, dashboard_manifests
from longboat.engines.kubernetes.install.dashboard_manifests import DashboardSetup
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP, POD, SECRET
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.clusters.worlds import cluster as spec_of

pytestmark = pytest.mark.cluster

RIGHTS = ("Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
CORE, APPS, RBAC = "/api/v1", "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"
OWN, OTHER = "{own}", "{other}"


class Account(NamedTuple):
    """What is installed, the account of it, and requests: those that it needs, and those that no one answers."""

    name: str
    bodies: Callable[[str], list[dict[str, Any]]]
    may: tuple[str, ...]
    may_not: tuple[str, ...]


def core(method: str, rest: str, namespace: str = OWN) -> str:
    return f"{method} {CORE}/namespaces/{namespace}/{rest}"


EVERYWHERE = (
    f"GET {CORE}/secrets",
    f"GET {CORE}/namespaces/kube-system/secrets",
    f"POST {RBAC}/clusterrolebindings",
    f"POST {RBAC}/namespaces/{OWN}/rolebindings",
    f"POST {RBAC}/namespaces/{OTHER}/rolebindings",
    f"POST {CORE}/namespaces/{OWN}/serviceaccounts/default/token",
    f"POST {APPS}/namespaces/{OWN}/daemonsets",
    core("POST", "pods"),
    core("POST", "pods", OTHER),
    core("GET", "secrets"),
    core("GET", "secrets", OTHER),
    core("GET", "secrets/victim", OTHER),
    core("DELETE", "secrets"),
    core("DELETE", "secrets/victim"),
    core("PATCH", "secrets/victim"),
    "DELETE /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/victim",
)
"""What none of them may."""

CONTROLLER = Account(
    "longboat-controller",
    lambda own: controller_manifests.objects(image="image", only=[own], version="1"),
    (f"GET {CORE}/nodes", core("GET", "configmaps"), core("GET", "pods"), core("GET", "secrets/victim")),
    (
        core("GET", "configmaps", OTHER),
        core("GET", "configmaps/victim", OTHER),
        core("PATCH", "configmaps/victim", OTHER),
        core("POST", "secrets", OTHER),
        core("DELETE", "pods/victim", OTHER),
        core("POST", "pods/victim/exec", OTHER),
        core("GET", "pods/victim/log", OTHER),
        f"POST /apis/batch/v1/namespaces/{OTHER}/jobs",
        f"DELETE /apis/batch/v1/namespaces/{OTHER}/jobs/victim",
        f"DELETE {CORE}/nodes/victim",
        f"PATCH {CORE}/nodes/victim",
        f"DELETE {CORE}/namespaces/{OWN}",
        core("PATCH", "pods/victim"),
        core("POST", "pods/victim/attach"),
        core("DELETE", "persistentvolumeclaims/victim"),
    ),
)
AUTOSCALER = Account(
    "longboat-autoscaler",
    lambda own: autoscaler_manifests.autoscaler_objects(image="i", pools="pools: []", version="1", simulates=False),
    (f"GET {CORE}/nodes", f"GET {CORE}/pods", core("GET", "configmaps/victim")),
    (
        core("GET", "secrets/victim"),
        core("GET", "configmaps"),
        core("PATCH", "configmaps/victim"),
        core("DELETE", "pods/victim"),
        core("POST", "pods/victim/exec"),
        core("GET", "pods/victim/log"),
        f"POST {CORE}/nodes",
        f"POST /apis/batch/v1/namespaces/{OWN}/jobs",
        f"DELETE /apis/batch/v1/namespaces/{OWN}/jobs/victim",
    ),
)
PROVISIONER = Account(
    "longboat-storage",
    lambda own: storage_objects(spec_of(), "longboat.test/any:1", is_default=False),
    (f"GET {CORE}/persistentvolumeclaims", f"GET {CORE}/persistentvolumes", f"GET {CORE}/nodes/victim"),
    (
        core("GET", "secrets/victim"),
        core("GET", "configmaps"),
        core("GET", "pods"),
        core("DELETE", "persistentvolumeclaims/victim"),
        f"PATCH {CORE}/nodes/victim",
        f"GET {CORE}/nodes",
    ),
)
DASHBOARD = Account(
    "longboat-ui",
    lambda own: dashboard_manifests.dashboard_objects(
        image="i", setup=DashboardSetup((own,), "https://lab.example", ("alice",), ("ml",)), version="1"
    ),
    (core("GET", "configmaps"), core("GET", "pods"), core("GET", "pods/victim/log")),
    (
        core("GET", "secrets/victim"),
        core("GET", "configmaps", OTHER),
        core("GET", "pods", OTHER),
        core("GET", "pods/victim/log", OTHER),
        core("POST", "pods/victim/exec"),
        core("PATCH", "configmaps/victim"),
        core("DELETE", "configmaps/victim"),
        core("DELETE", "pods/victim"),
        f"PATCH /apis/batch/v1/namespaces/{OWN}/jobs/victim",
    ),
)
ACCOUNTS = (CONTROLLER, AUTOSCALER, PROVISIONER, DASHBOARD)


class Installation:
    """The rights of one part, under names of this test, and what it could be after in two namespaces."""

    def __init__(self, cluster: Cluster, kubectl: Kubectl, namespace: str, folder: Path) -> None:
        self.cluster, self.kubectl, self.namespace, self.folder = cluster, kubectl, namespace, folder
        self.other = f"{namespace}-other"
        self.made: list[str] = [f"namespace/{self.other}"]
        kubectl("create", "namespace", self.other)
        for place in (namespace, self.other):
            for kind, name in ((CONFIG_MAP, "victim"), (SECRET, "victim")):
                body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
                kubectl("apply", "-n", place, "-f", "-", text=json.dumps(body))

    def client(self, account: Account, **environment: str) -> Client:
        """As the account. Its objects are those that are installed, but for the beginnings of their names."""
        bodies = [body for body in account.bodies(self.namespace) if body["kind"] in RIGHTS]
        bodies = json.loads(json.dumps(bodies).replace('"longboat-', f'"{self.namespace}-'))
        if not any(body["kind"] == "Namespace" for body in bodies):  # the controller's, which these stand beside
            home = f"{self.namespace}-system"
            bodies.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}})
        kinds = ("Namespace", "ClusterRole", "ClusterRoleBinding")
        self.made += [f"{body['kind']}/{body['metadata']['name']}" for body in bodies if body["kind"] in kinds]
        with Client.open(environment={"KUBECONFIG": str(self.cluster.kubeconfig)}) as admin:
            for body in bodies:
                admin.apply(body)
        named = next(body["metadata"] for body in bodies if body["kind"] == "ServiceAccount")
        assert named["name"] == account.name.replace("longboat-", f"{self.namespace}-")
        token = self.kubectl("create", "token", named["name"], "-n", named["namespace"]).strip()
        shown = json.loads(self.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        shown["users"] = [{"name": shown["contexts"][0]["context"]["user"], "user": {"token": token}}]
        config = self.folder / "account.kubeconfig"
        config.write_text(json.dumps(shown))
        return Client.open(namespace=self.namespace, environment={"KUBECONFIG": str(config), **environment})

    def answer(self, client: Client, request: str) -> str:
        """`403`, or what else it was."""
        method, path = request.replace(OWN, self.namespace).replace(OTHER, self.other).split()
        patched = "application/merge-patch+json" if method == "PATCH" else "application/json"
        body = None if method == "GET" else {}
        try:
            client.request(method, path, body=body, content_type=patched, may_repeat=False)
        except Forbidden:
            return "403"
        except ApiError as error:
            return type(error).__name__
        return "200"


@pytest.fixture
def installation(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(cluster, kubectl, namespace, tmp_path)
    yield made
    kubectl("delete", "--ignore-not-found", "--wait=false", *made.made)


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.name)
def test_what_its_page_says_it_cannot(installation: Installation, account: Account) -> None:
    with installation.client(account) as client:
        assert [ask for ask in account.may if installation.answer(client, ask) == "403"] == []
        done = [(ask, installation.answer(client, ask)) for ask in (*EVERYWHERE, *account.may_not)]
    assert [ask for ask in done if ask[1] != "403"] == []


def test_the_dashboard_is_nobody_but_who_was_named(installation: Installation) -> None:
    everybody = {"LONGBOAT_AS": "alice", "LONGBOAT_AS_GROUPS": "system:masters"}
    others: tuple[dict[str, str], ...] = (
        {"LONGBOAT_AS": "carol"},
        {"LONGBOAT_AS": "system:admin"},
        {"LONGBOAT_AS": "system:serviceaccount:kube-system:default"},
        everybody,
        {"LONGBOAT_AS": "alice", "LONGBOAT_AS_GROUPS": "ml, system:masters"},
    )
    for other in others:
        with installation.client(DASHBOARD, **other) as client, pytest.raises(Forbidden, match="impersonate"):
            client.list(POD)
    for name, groups in (("alice", ""), ("alice", "ml")):
        with installation.client(DASHBOARD, LONGBOAT_AS=name, LONGBOAT_AS_GROUPS=groups) as client:
            with pytest.raises(Forbidden) as refusal:
                client.list(SECRET)
            assert "alice" in str(refusal.value) and "impersonate" not in str(refusal.value)
