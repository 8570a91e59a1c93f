"""A dashboard behind a proxy that says who asks: a real API server's RBAC decides what each user sees and stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.autoscaler.model.snapshot import ProviderFailure
from longboat.autoscaler.observe.orders import OrderBook, OrderStore
from longboat.core.runs import RunStatus
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.install.controller_manifests import rules_of
from longboat.engines.kubernetes.install.dashboard_manifests import READS, impersonation_of
from longboat.web.app import Dashboard, make_app
from longboat.web.events import EventLog
from longboat.web.places import ShownPlace
from longboat.web.server import DashboardOptions, access_rules
from longboat.web.watching import Watchers
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.broken import apply, user_config
from tests.engines.kubernetes.test_documented_roles import on_page
from tests.web.asgi import Answer, ask

pytestmark = pytest.mark.cluster

TOKEN = "proof-of-the-proxy-0123456789abcdef"
RBAC = "rbac.authorization.k8s.io"


class ProxiedDashboard:
    """A dashboard with the rights of `install --ui --ui-user alice ...`, asked as its proxy asks it."""

    def __init__(self, bench: Bench, kubeconfig: Path) -> None:
        self.bench = bench
        environment = {**bench.environment, "KUBECONFIG": str(kubeconfig)}
        self.engine = KubernetesEngine(namespace=bench.namespace, environment=environment)
        options = DashboardOptions(public_url="https://lab.example", has_users=True, token_file="/x", groups=("ml",))
        rules = access_rules(options, 8080, TOKEN)
        place = ShownPlace("lab", "lab", "kubernetes", self.engine, namespace=bench.namespace)
        self.watchers = Watchers([place], EventLog())
        self.app = make_app(Dashboard(self.watchers, rules))
        self.look()

    def look(self) -> None:
        """With the dashboard's own rights."""
        self.watchers.note("lab", self.engine.list(), 1_700_000_000.0)

    def ask(self, user: str, method: str, target: str, data: Any = None, **headers: str) -> Answer:
        given = {"host": "lab.example", "x-longboat-proxy": TOKEN, "x-forwarded-user": user, **headers}
        if method == "POST":
            given.setdefault("x-longboat-csrf", self.ask(user, "GET", "/api/state").data.get("csrf", ""))
        body = json.dumps(data).encode() if data is not None else b""
        return asyncio.run(ask(self.app, method, target, given, body))

    def status(self) -> RunStatus:
        return self.bench.engine.status("theirs")


def bind(kubectl: Kubectl, user: str, rules: list[dict[str, Any]]) -> None:
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": user}
    version = f"{RBAC}/v1"
    apply(
        kubectl,
        {"apiVersion": version, "kind": "Role", "metadata": {"name": user}, "rules": rules},
        {"apiVersion": version, "kind": "RoleBinding", "metadata": {"name": user}, "subjects": [subject],
         "roleRef": reference},
    )  # fmt: skip


@pytest.fixture
def dashboard(
    cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]], tmp_path: Path
) -> Iterator[ProxiedDashboard]:
    kwok_nodes("1:cpu")
    config = user_config(cluster, kubectl, namespace, tmp_path, rules_of(READS), name="dashboard")
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": namespace}
    subject = {"kind": "ServiceAccount", "name": "dashboard", "namespace": namespace}
    named = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": namespace}}
    may_be = rules_of(impersonation_of(("alice", "bob", "mallory"), ("ml",)))
    apply(
        kubectl,
        {**named, "kind": "ClusterRole", "rules": may_be},
        {**named, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": role},
    )
    bind(kubectl, "alice", on_page("role.yaml")["rules"])
    bind(kubectl, "bob", rules_of(READS))
    bind(kubectl, "carol", on_page("role.yaml")["rules"])
    bench = Bench(cluster, namespace, tmp_path / "bench")
    # With a storage nobody asks simulated nodes for the last lines of their pods.
    chosen = {"kubernetes": {"image": "x", "storage": {"path": "/kept"}}}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps(chosen))
    bench.engine.submit(bench.submission("", "theirs", run=["sleep", "600"], workdir=None))
    made = ProxiedDashboard(bench, config)
    try:
        yield made
    finally:
        made.engine.close()
        bench.close()
        kubectl("delete", "clusterrole,clusterrolebinding", namespace)


def test_the_clusters_rights_decide_who_sees_and_stops_what(dashboard: ProxiedDashboard) -> None:
    """bob may look, alice may stop, mallory has no rights there, carol is nobody that the dashboard may act as."""
    for user in ("alice", "bob"):
        assert [row["id"] for row in dashboard.ask(user, "GET", "/api/runs").data["runs"]] == ["theirs"]
        assert dashboard.ask(user, "GET", "/api/state").data["user"] == user
        page = dashboard.ask(user, "GET", "/api/runs/lab/theirs")
        assert page.status == 200, page.data
        assert page.data["may"] == {"stop": True, "retry": False, "resume": False, "remove": False}
    refused = dashboard.ask("mallory", "GET", "/api/runs")
    assert refused.status == 403 and "mallory may not list runs" in refused.data["error"]
    refused = dashboard.ask("carol", "GET", "/api/runs")
    assert refused.status == 403 and "impersonate" in refused.data["error"], refused.data
    assert dashboard.ask("alice", "GET", "/api/runs", **{"x-forwarded-groups": "ml, system:masters"}).status == 200

    stop = "/api/runs/lab/theirs/stop"
    refused = dashboard.ask("bob", "POST", stop, {})
    assert refused.status == 403 and "configmaps" in refused.data["error"], refused.data
    assert not dashboard.status().is_final
    with_another = {"x-longboat-csrf": dashboard.ask("bob", "GET", "/api/state").data["csrf"]}
    assert dashboard.ask("alice", "POST", stop, {}, **with_another).status == 403
    assert dashboard.ask("alice", "POST", "/api/runs/lab/theirs/retry", {}).status == 403
    assert not dashboard.status().is_final
    stopped = dashboard.ask("alice", "POST", stop, {})
    assert stopped.status == 200, stopped.data
    assert dashboard.bench.engine.wait("theirs", timeout_s=60).phase == "stopped"


def test_pools_are_retried_with_the_rights_of_who_asks(
    dashboard: ProxiedDashboard, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = dashboard.bench.namespace
    monkeypatch.setattr("longboat.web.views.scaling.lease_namespace", lambda _client: namespace)  # of no other test
    failure = ProviderFailure(pool="gpu", kind="stockout", at=1.0, message="nothing is left")
    orders = OrderStore(dashboard.bench.engine.client, namespace)
    orders.load()
    orders.save(OrderBook(failures=(failure,)))
    bind(kubectl, "alice", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "update"]}])
    retry = "/api/autoscaler/lab/retry"
    refused = dashboard.ask("bob", "POST", retry, {})
    assert refused.status == 403 and "configmaps" in refused.data["error"], refused.data
    assert dashboard.ask("alice", "POST", retry, {}).data == {"retried": ["gpu"]}
    assert orders.load().failures == ()
    assert dashboard.ask("alice", "POST", retry, {}).data == {"retried": []}


def test_a_name_without_the_proxys_proof_is_nobodys(dashboard: ProxiedDashboard) -> None:
    for proof in ({"x-longboat-proxy": ""}, {"x-longboat-proxy": "proof"}, {"x-longboat-proxy": TOKEN + "x"}):
        for more in ({}, {"authorization": f"Bearer {TOKEN}"}, {"cookie": "longboat-8080=x"}):
            assert dashboard.ask("alice", "GET", "/api/runs", **proof, **more).status == 401
            headers = {**proof, **more, "x-longboat-csrf": "x"}
            assert dashboard.ask("alice", "POST", "/api/runs/lab/theirs/stop", {}, **headers).status == 401
    for name in ("", "system:admin", "system:serviceaccount:kube-system:x", " alice", "al\xefce"):
        assert dashboard.ask(name, "GET", "/api/runs").status == 401, name
    assert dashboard.ask("alice", "GET", f"/?token={TOKEN}").status == 200  # the page; the token in it is worth nothing
    assert "set-cookie" not in dashboard.ask("alice", "GET", f"/?token={TOKEN}").headers
    assert not dashboard.status().is_final
