"""What the testbed changes in a controller's own manifests, as data."""

from __future__ import annotations

import json

from testbed import api, jobset, manifests
from testbed.manifests import Pair

HOOK = {"clientConfig": {"service": {"name": "jobset-webhook-service"}}}
PAIR = Pair("CERTIFICATE", "KEY", "AUTHORITY")


def deployment() -> api.Object:
    container = {
        "image": "elsewhere/jobset:v1",
        "command": ["/manager"],
        "resources": {"requests": {"cpu": "2"}},
        "readinessProbe": {"initialDelaySeconds": 5},
        "volumeMounts": [],
    }
    pod = {"containers": [container], "volumes": [{"name": "visibility", "emptyDir": {}}]}
    return {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {"spec": pod}}}


def test_changes_are_made_in_a_copy() -> None:
    items = [
        deployment(),
        {"kind": "Secret", "metadata": {"name": "jobset-webhook-server-cert"}},
        {"kind": "Secret", "metadata": {"name": "other"}},
        {"kind": "ValidatingWebhookConfiguration", "webhooks": [HOOK]},
        {"kind": "CustomResourceDefinition", "spec": {"conversion": {"webhook": HOOK}}},
        {"kind": "CustomResourceDefinition", "spec": {}},
        {"kind": "ConfigMap", "data": {manifests.CONFIG_FILE: "leaderElect: true\nenable: true\n"}},
    ]
    before = json.dumps(items)
    pod, secret, other, hooks, converted, plain, configured = manifests.adapt(jobset.CONTROLLER, items, PAIR)
    assert json.dumps(items) == before
    container = pod["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "longboat.test/jobset:latest" and container["command"] == ["/jobset"]
    assert pod["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"] == "jobset-webhook-server-cert"
    assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"} and "data" not in other
    assert hooks["webhooks"][0]["clientConfig"]["caBundle"] == manifests.encoded("AUTHORITY")
    assert converted["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == manifests.encoded("AUTHORITY")
    assert plain == {"kind": "CustomResourceDefinition", "spec": {}}
    assert configured["data"][manifests.CONFIG_FILE] == "leaderElect: false\nenable: false\n"


def test_json_values_one_after_the_other() -> None:
    assert manifests.parse('{"a": 1}\n{\n "b": 2\n}\n') == [{"a": 1}, {"b": 2}]
    assert manifests.parse("") == []
