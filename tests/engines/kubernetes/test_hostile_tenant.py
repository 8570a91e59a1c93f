"""Tenants who write records against those who read them: a controller with its installed rights, and an administrator.

Mallory may write ConfigMaps of one namespace and nothing else; Mick may create Jobs and Secrets there too. Nothing may
come to be that they could not have created themselves. The API server, its RBAC and the controller are real.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.runs import Attempt, Failure
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.install import controller_manifests
from longboat.engines.kubernetes.install.controller_manifests import CLUSTER, ELECTION, RUNS
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.record_store import STOP
from longboat.engines.kubernetes.records import Gate, Record, State, Storage
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, POD, SECRET, SERVICE
from testbed import api
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import IMAGE, Bench
from tests.engines.kubernetes.broken import user_config
from tests.engines.kubernetes.controlling import wait_for_end
from tests.engines.kubernetes.manifest_samples import job, record, role

pytestmark = pytest.mark.pods

WRITER = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "patch", "delete"]}
PLANTER = [
    WRITER,
    {"apiGroups": [""], "resources": ["secrets", "services"], "verbs": ["create"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create"]},
]
EVIL: dict[str, Any] = {
    "spec": {"hostPID": True, "containers": [{"name": "main", "securityContext": {"privileged": True}}]}
}
FAILED = Attempt(number=0, started=1.0, ended=2.0, failure=Failure(cause="exit", exit_code=3, message="bad"))
AGAIN = State(phase="recovering", attempt=1, attempts=(FAILED,))
GONE = State(phase="failed", attempts=(FAILED,), started=1.0, ended=2.0, exit_code=3)
FLAKY = 'import os, sys, time; time.sleep(4); sys.exit(0 if os.environ["LONGBOAT_ATTEMPT"] == "1" else 5)'
KINDS = (POD, JOB, SECRET, SERVICE)


class Case(msgspec.Struct):
    """What a tenant writes: the record's fields, its state, and what stands in its ConfigMap beside them."""

    fields: dict[str, Any] = {}
    state: State = State()
    text: str | None = None
    annotations: dict[str, str] = {}


def retried(**fields: Any) -> dict[str, Any]:
    from longboat.core.jobs import Retries

    return {"what": job(role(), retries=Retries(count=9)), **fields}


def cases(victim: str) -> dict[str, Case]:
    """A name of the run -> what is written there. All of them would have been acted upon, were records trusted."""
    return {
        "a-gate": Case(retried(gated_by="longboat"), State(gate=Gate(reason="waits"), reason="waits")),
        "elsewhere": Case(retried(namespace=victim), AGAIN),
        "elsewhere-first": Case({"namespace": victim}),
        "system": Case({"namespace": "kube-system", "pod": EVIL}),
        "system-again": Case(retried(namespace="kube-system", pod=EVIL), AGAIN),
        "other-name": Case(retried(name="honest"), AGAIN),
        "first-attempt": Case({"pod": EVIL, "service_account": "anna"}),
        "my-admin": Case(retried(pod=EVIL, service_account="anna", user="admin"), AGAIN),
        "no-template": Case(retried(pod=EVIL, service_account="anna"), AGAIN),
        "forged-template": Case(retried(pod=EVIL), AGAIN),
        "many-attempts": Case(retried(), msgspec.structs.replace(AGAIN, attempt=1000)),
        "huge": Case({"what": job(role(nodes=10**12))}, AGAIN),
        "deep": Case(text='{"name": "deep", "pod": ' + '{"a": ' * 100_000),
        "newer": Case(text='{"name": "newer", "shape": [1, 2], "job": "train"}'),
        "bad-uid": Case(retried(uid="../../..")),
        "stopped": Case({"pod": EVIL}, annotations={STOP: "{"}),
        "long-gone": Case({}, GONE, annotations={names.KEEP: "0"}),
        "never": Case({}, GONE, annotations={names.KEEP: "9" * 4000}),
        "host-files": Case(
            {"storage": Storage(path="/", folder="../etc"), "checkpoint_dir": "/longboat/storage/etc"},
            State(phase="failed", started=1.0, ended=2.0, exit_code=1),
        ),
    }


def written(name: str, namespace: str, case: Case) -> dict[str, Any]:
    given = {"name": name, "namespace": namespace, "user": "mallory", "images": {"worker": IMAGE}, **case.fields}
    what: Record = record(**given)
    body = objects.record_object(what, case.state)
    body["metadata"] |= {"name": name, "namespace": namespace, "annotations": case.annotations}
    body["metadata"]["labels"][names.RUN] = name
    if case.text is not None:
        body["data"]["record"] = case.text
    return body


class Town:
    """Everybody, with the rights that each has."""

    def __init__(self, cluster: Cluster, namespace: str, kubectl: Kubectl, folder: Path) -> None:
        self.cluster, self.namespace, self.kubectl, self.folder = cluster, namespace, kubectl, folder
        self.victim = f"{namespace}-victim"
        self.mallory = self.somebody("mallory", [WRITER])
        self.mick = self.somebody("mick", PLANTER)
        rules = role_for(PERMISSIONS, namespace=namespace)["rules"]
        assert isinstance(rules, list)
        config = user_config(cluster, kubectl, namespace, folder, rules, "anna")
        self.anna = Bench(cluster, namespace, folder / "anna", config)
        self.admin = Client.open(namespace=namespace, environment={"KUBECONFIG": str(cluster.kubeconfig)})

    def somebody(self, name: str, rules: list[dict[str, Any]]) -> Client:
        config = user_config(self.cluster, self.kubectl, self.namespace, self.folder, rules, name)
        return Client.open(namespace=self.namespace, environment={"KUBECONFIG": str(config)})

    def close(self) -> None:
        for client in (self.mallory, self.mick, self.admin):
            client.close()
        self.anna.close()

    def typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """By the administrator."""
        environment = {
            **os.environ,
            "LONGBOAT_HOME": str(self.folder / "admin-home"),
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "LOGNAME": "admin",
            "NO_COLOR": "1",
        }
        command = [sys.executable, "-m", "longboat", *words, "--engine", "kubernetes", "--namespace", self.namespace]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def inventory(self) -> set[str]:
        """Everything that runs or could, where somebody might want to get in."""
        places = (self.namespace, self.victim, "kube-system", "default")
        return {
            f"{kind.kind} {place}/{one['metadata']['name']}"
            for place in places
            for kind in KINDS
            for one in self.admin.list(kind, namespace=place).items
            if "-token-" not in one["metadata"]["name"]
        }

    def records(self) -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in self.admin.list(CONFIG_MAP, labels=f"{names.KIND}=run").items
        }


@pytest.fixture
def town(
    cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Town]:
    monkeypatch.setenv("LOGNAME", "anna")
    (tmp_path / "anna").mkdir()
    made = Town(cluster, namespace, kubectl, tmp_path)
    kubectl("create", "namespace", made.victim)
    yield made
    kubectl("delete", "namespace", made.victim, "--wait=false")
    made.close()


@contextlib.contextmanager
def installed_controller(town: Town) -> Iterator[Path]:
    """The controller as a process, with just the rules that `longboat install --only` binds in its namespace."""
    name = f"controller-{town.namespace}"
    config = user_config(
        town.cluster, town.kubectl, town.namespace, town.folder, controller_manifests.rules_of((*RUNS, *ELECTION)), name
    )
    account = {"kind": "ServiceAccount", "name": name, "namespace": town.namespace}
    group = "rbac.authorization.k8s.io"
    meta = {"name": name}
    wide = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": meta,
        "rules": controller_manifests.rules_of(CLUSTER),
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "subjects": [account],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
    }
    for body in (wide, binding):
        town.kubectl("apply", "-f", "-", text=json.dumps(body))
    log = town.folder / "controller.log"
    words = ["controller", "--only", town.namespace, "--lease", town.namespace]
    environment = {**os.environ, "KUBECONFIG": str(config), "LONGBOAT_HOME": str(town.folder / "controller-home")}
    with open(log, "wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "longboat", *words], env=environment, stderr=file)
    try:
        api.wait_for("it leads", lambda: " leads" in log.read_text(), 60.0)
        yield log
    finally:
        process.terminate()
        process.wait(timeout=60)
        town.kubectl("delete", "clusterrole,clusterrolebinding", name)


def write_all(town: Town) -> Mapping[str, Case]:
    found = cases(town.victim)
    for name, case in found.items():
        town.mallory.create(written(name, town.namespace, case))
    forged = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "forged-template-t-worker",
            "labels": {
                names.MANAGED_BY: "longboat",
                names.KIND: "template",
                names.TEMPLATE_OF: "forged-template",
            },
        },
    }
    town.mallory.create(forged)
    for kind, name in ((JOB, "x"), (POD, "x"), (SECRET, "x")):
        with pytest.raises(Forbidden):
            town.mallory.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}})
    return found


def test_records_are_looked_at_and_left_as_they_are(town: Town) -> None:
    """By an administrator, who could create anything anywhere."""
    found = write_all(town)
    before, versions = town.inventory(), town.records()
    listed = town.typed("ps", "-a")
    assert listed.returncode == 0, listed.stderr
    for name in ("elsewhere", "system", "other-name", "huge", "deep", "newer", "bad-uid"):
        told = [line for line in listed.stderr.splitlines() if f"the record of run {name} " in line]
        assert len(told) == 1, (name, listed.stderr)
    for name in ("system-again", "my-admin", "deep", "host-files"):
        for words in (("status", name), ("explain", name)):
            done = town.typed(*words)
            assert "Traceback" not in done.stderr, done.stderr
    assert town.inventory() == before, "looking makes nothing"
    changed = {name for name, version in town.records().items() if versions[name] != version}
    assert changed <= {"my-admin"}, "looking changes nothing that is not one's own"
    for name in ("deep", "system", "host-files"):
        assert town.typed("rm", name).returncode in ((205,) if name != "host-files" else (0,))
        assert name == "host-files" or town.typed("rm", "--force", name).stdout == f"{name}\n"
        assert town.admin.find(CONFIG_MAP, name) is None
    assert town.inventory() == before, "no pod was made to clear a folder that the record names"
    assert found.keys() - town.records().keys() == {"deep", "system", "host-files"}


def test_the_controller_makes_nothing_but_what_submitters_made(town: Town) -> None:
    write_all(town)
    before = town.inventory()
    anna, retries = town.anna, {"count": 1, "backoff": "0s", "restart": "new"}
    runs = ("honest", "swapped", "ordered", "planted", "diverted", "raised")
    for name in runs:
        anna.engine.submit(anna.submission(FLAKY, name=name, nodes=2, cpus=0.01, retries=retries, run_id=name))
    forge(town, "swapped", images={"worker": "evil"}, service_account="default", pod=EVIL)
    text = town.mallory.get(CONFIG_MAP, "ordered")["data"]["record"]
    changed = text.replace("train.py", "evil.py")
    assert changed != text
    town.mallory.patch(CONFIG_MAP, "ordered", {"data": {"record": changed}})
    plant(town)
    with installed_controller(town) as log:
        ended = {name: wait_for_end(town.admin, name) for name in runs}
        raised = msgspec.structs.replace(ended["raised"], phase="recovering", attempt=7)
        rewritten = {"data": {"state": msgspec.json.encode(raised).decode()}}
        town.mallory.patch(CONFIG_MAP, "raised", rewritten)
        api.wait_for("it was ended again", lambda: "retries allow" in state(town, "raised").reason, 60.0, every_s=0.2)
        said = log.read_text()
    assert {"long-gone", "never"} <= town.records().keys(), "records that own no workload make nobody remove anything"
    assert (ended["honest"].phase, len(ended["honest"].attempts)) == ("succeeded", 2), ended["honest"].reason
    for name, why in (
        ("swapped", "is not the one that was submitted"),
        ("ordered", "is not the one that was submitted"),
        ("planted", "Secret planted-a1 already that is not of this run"),
        ("diverted", "Service diverted-a1 already that is not of this run"),
    ):
        assert (ended[name].phase, ended[name].exit_code) == ("failed", 5), ended[name].reason
        assert "not tried again" in ended[name].reason and why in ended[name].reason
    assert "Traceback" not in said
    for name in ("elsewhere", "system", "huge", "deep", "other-name"):
        assert said.count(f"the record of run {name} ") == 1, said
    assert_only(town, town.inventory() - before, runs)


def state(town: Town, run: str) -> State:
    found: State = msgspec.json.decode(town.admin.get(CONFIG_MAP, run)["data"]["state"], type=State)
    return found


def forge(town: Town, run: str, **fields: Any) -> None:
    body = town.mallory.get(CONFIG_MAP, run)
    record_ = json.loads(body["data"]["record"]) | fields
    town.mallory.patch(CONFIG_MAP, run, {"data": {"record": json.dumps(record_)}})


def plant(town: Town) -> None:
    """What the next attempts will need, made by somebody else before."""
    owners = {run: objects.owner_of(town.mick.get(CONFIG_MAP, run)) for run in ("planted", "diverted")}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "planted-a1", "ownerReferences": [owners["planted"]]},
        "data": {"gang": base64.b64encode(b"x").decode(), "token": base64.b64encode(b"known").decode()},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "diverted-a1", "ownerReferences": [owners["diverted"]]},
        "spec": {"clusterIP": "None", "selector": {"app": "mick"}},
    }
    for body in (secret, service):
        town.mick.create(body)


def assert_only(town: Town, made: set[str], runs: tuple[str, ...]) -> None:
    """Attempts of honest runs, in their own namespace, as their submitter made them."""
    jobs = {one for one in made if one.startswith("Job ")}
    first = {f"Job {town.namespace}/{run}-a0-worker" for run in runs}
    templates = {f"Job {town.namespace}/{run}-t-worker" for run in runs}
    again = {f"Job {town.namespace}/{run}-a1-worker" for run in ("honest", "raised")}
    assert jobs == first | templates | again
    assert not [one for one in made if f" {town.namespace}/" not in one], made
    shared = ("longboat-code-", "longboat-launcher-", "longboat-helper")
    others = [one.partition("/")[2] for one in made if not one.startswith("Job ")]
    assert [one for one in others if not one.startswith((*(f"{run}-a" for run in runs), *shared))] == []
    for body in town.admin.list(JOB).items:
        spec = body["spec"]["template"]["spec"]
        assert "hostPID" not in spec and "securityContext" not in spec["containers"][0], body["metadata"]["name"]
        assert spec["containers"][0]["image"] == IMAGE and spec.get("serviceAccountName", "default") == "default"
    for body in town.admin.list(JOB, labels=f"{names.KIND}=template").items:
        assert not body["status"].get("active") and not body["status"].get("failed"), "a template never runs"
