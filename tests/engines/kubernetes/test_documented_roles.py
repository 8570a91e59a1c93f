"""The roles of docs/kubernetes.md, given to somebody on a real API server, who then does all that the docs promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.core.runs import LogQuery
from longboat.doctor.examine import ClusterTarget, examine_cluster
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import IMAGE, Bench
from tests.engines.kubernetes.broken import apply, until, user_config

PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"
LONGBOAT = Path(sys.executable).parent / "longboat"
FAILS_ONCE = """
import os, sys
print("attempt", os.environ["LONGBOAT_ATTEMPT"], flush=True)
sys.exit(5 if os.environ["LONGBOAT_ATTEMPT"] == "0" else 0)
"""
SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


def on_page(first_line: str) -> dict[str, Any]:
    """A YAML example of the page."""
    (text,) = [block for block in PAGE.read_text().split("```") if block.startswith(f"yaml\n# {first_line}\n")]
    found: dict[str, Any] = yaml.safe_load(text.removeprefix("yaml"))
    return found


def without(*resources: str) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = on_page("role.yaml")["rules"]
    return [rule for rule in rules if not set(rule["resources"]) & set(resources)]


@pytest.mark.pods
def test_the_role_is_enough_for_everything(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
    config = user_config(cluster, kubectl, namespace, tmp_path, on_page("role.yaml")["rules"])
    bench = Bench(cluster, namespace, tmp_path / "bench", config)
    engine = bench.engine
    try:
        target = ClusterTarget(engine.client, engine.settings, bench.environment)
        findings = {finding.name: finding for finding in examine_cluster(target, with_pods=True).findings}
        assert not [finding for finding in findings.values() if finding.status == "broken"]
        assert findings["train step"].status == "ok" and findings["heartbeats"].detail.startswith("no right to list")
        tried = engine.submit(bench.submission(FAILS_ONCE, run_id="tried", retries=1))
        lines = [line.data for line in engine.logs(tried.name, LogQuery(follow=True))]
        assert lines == [b"attempt 0\n", b"attempt 1\n"]
        assert engine.wait(tried.name, timeout_s=120).phase == "succeeded"
        assert [line.data for line in engine.logs(tried.name, LogQuery())] == lines

        held = engine.submit(bench.submission(SLEEPS, run_id="held", nodes=2))
        until("it runs", lambda: engine.status(held.name).phase == "running")
        until("it has begun", lambda: list(engine.logs(held.name, LogQuery())))
        assert engine.exec(held.name, ["sh", "-c", "echo here > made"]) == 0
        engine.copy_from(held.name, "made", tmp_path / "made")
        assert (tmp_path / "made").read_text() == "here\n"
        engine.copy_to(held.name, tmp_path / "made", "sent")
        assert engine.exec(held.name, ["cmp", "made", "sent"]) == 0
        assert engine.explain(held.name).run == held.name
        engine.stop(held.name, grace_s=1)
        assert engine.wait(held.name, timeout_s=120).phase == "stopped"
        for run in (tried.name, held.name):
            engine.delete(run)
        assert engine.list() == []
        assert not [notice for notice in bench.notices if "you may not" in notice]
    finally:
        bench.close()
    volumes(cluster, namespace, kubectl, tmp_path, config)


def volumes(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path, config: Path) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": namespace,
            "hostPath": {"path": f"/var/lib/{namespace}"},
        },
    }
    apply(kubectl, volume)
    try:
        made = longboat(tmp_path, namespace, config, "volume", "create", "data", "--size", "1Mi", "--class", namespace)
        assert made.returncode == 0, made.stderr
        assert "data" in longboat(tmp_path, namespace, config, "volume", "ls").stdout
        assert longboat(tmp_path, namespace, config, "volume", "rm", "data", "--yes").returncode == 0
    finally:
        kubectl("delete", "persistentvolume", namespace, "--wait=false")


def longboat(tmp_path: Path, namespace: str, config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    home = tmp_path / "cli-home"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(f"kubernetes: {{image: '{IMAGE}'}}\n")
    environment = {**os.environ, "LONGBOAT_HOME": str(home), "KUBECONFIG": str(config), "LONGBOAT_ENGINE": "kubernetes"}
    place = ["--namespace", namespace]
    at = 2 if words[0] == "volume" else 1
    (tmp_path / "code").mkdir(exist_ok=True)
    return subprocess.run(
        [LONGBOAT, *words[:at], *place, *words[at:]],
        cwd=tmp_path / "code", env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.mark.pods
@pytest.mark.parametrize("lacking", [("pods/log", "pods/exec"), ("pods/log",)], ids=["neither", "exec"])
def test_who_may_not_read_logs_still_gets_the_trainers_exit_code(
    cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    config = user_config(cluster, kubectl, namespace, tmp_path, without(*lacking))
    ended = longboat(tmp_path, namespace, config, "run", "--", "sh", "-c", "echo said; sleep 10; exit 7")
    assert ended.returncode == 7, ended.stderr
    if "pods/exec" in lacking:
        assert "the log of sh cannot be shown" in ended.stderr and "pods/log" in ended.stderr
    else:
        assert ended.stdout == "said\n", ended.stderr


@pytest.mark.cluster
def test_the_cluster_role_shows_all_that_preflight_looks_at(
    cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    from longboat.engines.kubernetes.submit.facts.cluster_facts import observe
    from tests.engines.kubernetes.broken import opened

    config = user_config(cluster, kubectl, namespace, tmp_path, on_page("role.yaml")["rules"])
    reader = on_page("clusterrole.yaml")
    reader["metadata"]["name"] = namespace
    subject = {"kind": "ServiceAccount", "name": "somebody", "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace},
        "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": namespace},
    }
    try:
        apply(kubectl, reader, binding)
        with opened(cluster, namespace, config) as client:
            seen = observe(client)
        assert seen.nodes is not None and seen.sees_all_pods and seen.has_namespace
        assert seen.storage_classes is not None and seen.quotas is not None and seen.limits is not None
        assert seen.denied == ()
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding", namespace)
