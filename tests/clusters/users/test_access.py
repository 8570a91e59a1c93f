"""A user of a cluster, on a real API server: all of a run's life in one namespace, nothing else, and the end of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from longboat.clusters.users.access import add_user, list_users, remove_user
from longboat.clusters.users.user_objects import ACCOUNTS, ROLE_NAME
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.runs import LogQuery
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.broken import opened, pod, until

SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}


class Team(NamedTuple):
    """A namespace that is not there yet, and names that no other test uses."""

    cluster: Cluster
    admin: Client
    namespace: str
    other: str
    user: str
    folder: Path

    def longboat(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "NO_COLOR": "1"}
        command = [sys.executable, "-m", "longboat", "cluster", "user", *words]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done


@pytest.fixture
def team(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> Iterator[Team]:
    with opened(cluster, namespace) as admin:
        made = Team(cluster, admin, f"{namespace}-team", namespace, f"u-{namespace[-30:]}", tmp_path)
        yield made
        for user in list_users(admin):
            if user.name.startswith(made.user):
                remove_user(admin, user.name)
        kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")


def may(client: Client, verb: str, resource: str, namespace: str, group: str = "", subresource: str = "") -> bool:
    asked = {"verb": verb, "resource": resource, "namespace": namespace, "group": group, "subresource": subresource}
    answer = client.create({**REVIEW, "metadata": {}, "spec": {"resourceAttributes": asked}})
    return bool(answer["status"]["allowed"])


def written(team: Team, grant: dict[str, Any], name: str = "grant") -> Path:
    file = team.folder / f"{name}.kubeconfig"
    file.write_text(json.dumps(grant))
    return file


@pytest.mark.pods
def test_all_of_a_run_s_life_and_nothing_else(team: Team) -> None:
    done = team.longboat("add", team.user, "--namespace", team.namespace, "--days", "2", "-o", "key.yaml")
    assert f"made the namespace {team.namespace}" in done.stderr and done.stdout == ""
    assert "privileged" not in done.stderr
    file = team.folder / "key.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    bench = Bench(team.cluster, team.namespace, team.folder / "bench", file)
    try:
        live_a_life(bench)
    finally:
        bench.close()
    assert not [notice for notice in bench.notices if "you may not" in notice]
    with opened(team.cluster, team.namespace, file) as client:
        refused(client, team)
        team.longboat("rm", team.user)
        until("the token is refused", lambda: is_refused(client))
    assert team.admin.find(kinds.ROLE, ROLE_NAME, namespace=team.namespace) is None


def live_a_life(bench: Bench) -> None:
    engine = bench.engine
    held = engine.submit(bench.submission(SLEEPS, run_id="held", nodes=2, retries=1))
    until("it has begun", lambda: list(engine.logs(held.name, LogQuery())))
    assert engine.exec(held.name, ["true"]) == 0
    assert engine.explain(held.name).run == held.name
    engine.stop(held.name, grace_s=1)
    assert engine.wait(held.name, timeout_s=240).phase == "stopped"
    engine.delete(held.name)
    assert engine.list() == []


def refused(client: Client, team: Team) -> None:
    """What somebody would try who wants more."""
    for place in (team.other, "default", "kube-system", ACCOUNTS):
        for kind in (kinds.POD, kinds.SECRET, kinds.CONFIG_MAP, kinds.JOB, kinds.SERVICE_ACCOUNT):
            with pytest.raises(Forbidden):
                client.list(kind, namespace=place)
        with pytest.raises(Forbidden):
            client.create({**pod("intruder"), "metadata": {"name": "intruder", "namespace": place}})
    for kind in (kinds.NODE, kinds.NAMESPACE, kinds.CLUSTER_ROLE, kinds.VOLUME):
        with pytest.raises(Forbidden):
            client.list(kind)
    for kind in (kinds.SECRET, kinds.POD):
        with pytest.raises(Forbidden):
            client.list(kind, everywhere=True)
    rbac = "rbac.authorization.k8s.io"
    for verb, resource, group, part in [
        ("create", "rolebindings", rbac, ""), ("patch", "roles", rbac, ""), ("escalate", "roles", rbac, ""),
        ("impersonate", "serviceaccounts", "", ""), ("create", "serviceaccounts", "", "token"),
        ("delete", "secrets", "", ""), ("update", "resourcequotas", "", ""), ("delete", "namespaces", "", ""),
        ("patch", "pods", "", "ephemeralcontainers"), ("get", "nodes", "", "proxy"),
    ]:  # fmt: skip
        assert not may(client, verb, resource, team.namespace, group, part), f"{verb} {resource}/{part}"
    root = pod("root", securityContext={"privileged": True})
    with pytest.raises(Forbidden, match="PodSecurity|violates"):
        client.create({**root, "metadata": {"name": "root", "namespace": team.namespace}})


def is_refused(client: Client) -> bool:
    try:
        client.list(kinds.POD)
    except ApiError as error:
        return error.status in (401, 403)
    return False


@pytest.mark.cluster
def test_namespaces_are_given_and_taken_one_by_one(team: Team) -> None:
    first, second = team.user, f"{team.user}-2"
    grant = add_user(team.admin, first, team.namespace, days=1)
    assert (grant.made_namespace, grant.is_unconfined, grant.is_shorter) == (True, False, False)
    again = add_user(team.admin, first, team.other, days=1)
    assert (again.made_namespace, again.is_unconfined) == (False, True)
    add_user(team.admin, second, team.namespace, days=1)
    users = {user.name: user for user in list_users(team.admin)}
    assert users[first].namespaces == tuple(sorted((team.namespace, team.other)))
    assert users[second].namespaces == (team.namespace,)
    expires = users[first].expires
    assert expires is not None and grant.expires is not None and expires >= grant.expires

    assert remove_user(team.admin, first, team.namespace) == (team.namespace,)
    assert team.admin.find(kinds.ROLE, ROLE_NAME, namespace=team.namespace) is not None
    with opened(team.cluster, team.other, written(team, grant.kubeconfig)) as client:
        until("the right is gone", lambda: not may(client, "list", "pods", team.namespace))
        assert client.list(kinds.POD, namespace=team.other).items == []
    with pytest.raises(NotFound):
        remove_user(team.admin, first, team.namespace)
    assert remove_user(team.admin, first) == (team.other,)
    assert first not in {user.name for user in list_users(team.admin)}
    with pytest.raises(NotFound):
        remove_user(team.admin, first)


@pytest.mark.cluster
def test_who_is_no_administrator_is_told_and_others_accounts_stay(team: Team, kubectl: Kubectl) -> None:
    grant = add_user(team.admin, team.user, team.namespace, days=1)
    with opened(team.cluster, team.namespace, written(team, grant.kubeconfig)) as client:
        with pytest.raises(EngineError, match="you may not make users here") as caught:
            add_user(client, f"{team.user}-2", team.namespace, days=1)
        assert caught.value.hint is not None and "administrator" in caught.value.hint
        with pytest.raises(Forbidden):
            list_users(client)
    foreign = f"{team.user}-3"
    kubectl("create", "serviceaccount", foreign, "--namespace", ACCOUNTS)
    try:
        with pytest.raises(UsageError, match="not made by Longboat"):
            add_user(team.admin, foreign, team.namespace, days=1)
        with pytest.raises(UsageError, match="not made by Longboat"):
            remove_user(team.admin, foreign)
    finally:
        kubectl("delete", "serviceaccount", foreign, "--namespace", ACCOUNTS)


@pytest.mark.cluster
def test_the_command_lists_and_does_not_overwrite(team: Team) -> None:
    add = ("add", team.user, "--namespace", team.namespace)
    team.longboat(*add)
    file = team.folder / f"{team.user}.kubeconfig"
    first = file.read_text()
    assert "exists already" in team.longboat(*add, code=201).stderr
    assert file.read_text() == first
    printed = team.longboat(*add, "-o", "-")
    assert yaml.safe_load(printed.stdout)["users"][0]["user"]["token"] not in printed.stderr
    listed = json.loads(team.longboat("ls", "-o", "json").stdout)
    (user,) = [each for each in listed if each["name"] == team.user]
    assert user["namespaces"] == [team.namespace] and user["expires"].endswith("Z")
    assert (
        "kube-system belongs to the system" in team.longboat("add", "x", "--namespace", "kube-system", code=201).stderr
    )
