"""What is laid over a pod template: mappings merge, named items merge by name, the rest is added."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec
import pytest

from longboat.core.errors import JobError
from longboat.engines.kubernetes.manifests.overlay import overlaid
from longboat.engines.kubernetes.manifests.pod_template import pod_template
from tests.engines.kubernetes.manifest_samples import record as sample_record

TEMPLATE = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {"name": "main", "image": "x", "volumeMounts": [{"name": "node", "mountPath": "/longboat/node"}]}
        ],
        "volumes": [{"name": "node", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}


def test_mappings_merge_and_scalars_are_replaced() -> None:
    found = overlaid(TEMPLATE, {"metadata": {"labels": {"b": "2"}}, "spec": {"hostNetwork": True}})
    assert found["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert found["spec"]["hostNetwork"] is True and found["spec"]["volumes"] == TEMPLATE["spec"]["volumes"]


def test_the_container_is_found_by_its_name() -> None:
    added = {
        "name": "main",
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "lib", "mountPath": "/usr"}],
    }
    found = overlaid(
        TEMPLATE, {"spec": {"containers": [added], "volumes": [{"name": "lib", "hostPath": {"path": "/usr"}}]}}
    )
    (container,) = found["spec"]["containers"]
    assert container["image"] == "x" and container["securityContext"] == {"privileged": True}
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/longboat/node", "/usr"]
    assert [volume["name"] for volume in found["spec"]["volumes"]] == ["node", "lib"]


def test_lists_without_names_are_added_to_once() -> None:
    more = {"key": "other", "operator": "Exists"}
    found = overlaid(TEMPLATE, {"spec": {"tolerations": [more, {"key": "k", "operator": "Exists"}]}})
    assert found["spec"]["tolerations"] == [{"key": "k", "operator": "Exists"}, more]


def test_neither_is_changed() -> None:
    before = copy.deepcopy(TEMPLATE)
    overlaid(TEMPLATE, {"spec": {"containers": [{"name": "main", "image": "y"}], "volumes": [{"name": "z"}]}})
    assert before == TEMPLATE


def test_the_settings_of_a_context_reach_every_pod(tmp_path: Path) -> None:
    from longboat.engines.kubernetes.settings import read_settings

    (tmp_path / "config.yaml").write_text(
        "kubernetes: {pod: {spec: {hostNetwork: true, nodeSelector: {disk: fast}}}}\n"
    )
    record = msgspec.structs.replace(sample_record(), pod=read_settings({"LONGBOAT_HOME": str(tmp_path)}).cluster().pod)
    spec = pod_template(record, record.job.roles[0], 0, labels={})["spec"]
    assert spec["hostNetwork"] is True and spec["nodeSelector"] == {"disk": "fast"}
    assert [container["name"] for container in spec["containers"]] == ["main"]


def test_an_overlay_is_a_part_of_a_pod_template(tmp_path: Path) -> None:
    from longboat.engines.kubernetes.settings import read_settings

    (tmp_path / "config.yaml").write_text("kubernetes:\n  pod: {hostNetwork: true}\n")
    with pytest.raises(JobError, match="config.yaml:2:8.*metadata and spec"):
        read_settings({"LONGBOAT_HOME": str(tmp_path)})
