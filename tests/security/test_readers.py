"""Who may only look at a namespace: nothing that the role `view` shows holds a secret of a run, its code or tokens."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP, SECRET
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.cluster

CODE = "print('NEEDLE-in-the-code')"
SECRETS = {"PASSWORD": "NEEDLE-of-a-secret", "SIGNED": "https://data.example/x.tar?signature=NEEDLE-of-a-url"}
PLAIN = "everybody-sees-this"


@pytest.fixture
def reader(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> Iterator[Client]:
    """Somebody with the role `view` of Kubernetes in this namespace, and nothing else."""
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "rolebinding", "reader", "--clusterrole=view", f"--serviceaccount={namespace}:reader")
    shown = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    user = {"token": kubectl("create", "token", "reader").strip()}
    shown["users"] = [{"name": shown["contexts"][0]["context"]["user"], "user": user}]
    (tmp_path / "reader.kubeconfig").write_text(json.dumps(shown))
    environment = {"KUBECONFIG": str(tmp_path / "reader.kubeconfig")}
    with Client.open(namespace=namespace, environment=environment) as client:
        yield client


def everything(client: Client, kubectl: Kubectl, namespace: str) -> dict[str, str]:
    """Each kind that the reader may list in the namespace -> all of it."""
    shown: dict[str, str] = {}
    for line in kubectl("api-resources", "--namespaced", "--verbs=list", "--no-headers").splitlines():
        words = line.split()
        version, plural = words[-3], words[0]
        path = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        try:
            shown[plural] = client.request("GET", f"{path}/namespaces/{namespace}/{plural}").decode()
        except ApiError:
            continue
    return shown


def test_who_may_only_look_sees_no_secret_of_a_run(
    cluster: Cluster,
    namespace: str,
    kubectl: Kubectl,
    kwok_nodes: Callable[..., list[str]],
    reader: Client,
    tmp_path: Path,
) -> None:
    kwok_nodes("1:cpu")
    bench = Bench(cluster, namespace, tmp_path / "bench")
    bench.environment.update(SECRETS)
    secrets = {name: {"env": name} for name in SECRETS}
    data = [{"url": SECRETS["SIGNED"], "to": "data"}]
    try:
        fields = {"env": {"SHOWN": PLAIN}, "secrets": secrets, "data": data, "retries": 2, "nodes": 2}
        run = bench.engine.submit(bench.submission(CODE, name="train", **fields)).name
        admin = bench.engine.client
        tokens = [
            base64.b64decode(value).decode("latin-1")
            for body in admin.list(SECRET).items
            for key, value in (body.get("data") or {}).items()
            if key == "token"
        ]
        assert tokens, "a gang of two nodes has one"
        shown = everything(reader, kubectl, namespace)
        text = "\n".join(shown.values())
        assert {"configmaps", "jobs", "services"} <= shown.keys() and "secrets" not in shown
        assert PLAIN in text and run in text, "this is what a reader does see"
        for needle in ("NEEDLE", *tokens, *(base64.b64encode(token.encode()).decode() for token in tokens)):
            assert needle not in text, needle
        with pytest.raises(Forbidden):
            reader.list(SECRET)
        for body in admin.list(SECRET).items:
            with pytest.raises(Forbidden):
                reader.get(SECRET, body["metadata"]["name"])
        with pytest.raises(Forbidden):
            reader.patch(CONFIG_MAP, run, {"metadata": {"annotations": {"a": "b"}}})
    finally:
        bench.close()
