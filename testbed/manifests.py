"""Controllers that run in the cluster as Deployments, from the manifests of their own Go modules.

`kubectl kustomize` makes one list of objects of a module's folder; it is kept in the cache. What the testbed changes in
it is a pure function. Their webhooks get a certificate of the cluster's authority: a controller that makes its own
waits a minute or more until it sees it. Not here: which controllers there are (`jobset`, `kueue`).
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import api, binaries, build, certificates, images
from testbed.api import Object
from testbed.binaries import Binaries
from testbed.certificates import Certificate
from testbed.clusters import Cluster
from testbed.dns import FIRST_NODE
from testbed.errors import Missing, TestbedError

MARK = "testbed.longboat.test/rendered"
CONFIG_FILE = "controller_manager_config.yaml"
READY_S = 90.0


@dataclass(frozen=True)
class Controller:
    """One controller; its objects are named after it, as its own manifests do."""

    name: str
    module: str
    configure: Callable[[str], str]
    """What is changed in the text of its configuration file."""
    sample: Object
    """What only its webhooks can accept, to see that they do."""

    @property
    def space(self) -> str:
        return f"{self.name}-system"

    @property
    def deployment(self) -> str:
        return f"{self.name}-controller-manager"

    @property
    def secret(self) -> str:
        return f"{self.name}-webhook-server-cert"

    @property
    def hosts(self) -> tuple[str, ...]:
        service = f"{self.name}-webhook-service.{self.space}.svc"
        return (service, f"{service}.cluster.local")


@dataclass(frozen=True)
class Pair:
    """A serving certificate, its key and the authority, each as PEM text."""

    certificate: str
    key: str
    authority: str


def cached_file(controller: Controller) -> Path:
    module = binaries.GO_FOLDER / binaries.BY_NAME[controller.name].module
    digest = hashlib.sha256(f"{controller.module} 1".encode() + (module / "go.mod").read_bytes())
    return binaries.cache_folder() / "manifests" / f"{controller.name}-{digest.hexdigest()[:16]}.json"


def missing(controller: Controller) -> str | None:
    """What this machine lacks to have the manifests."""
    if cached_file(controller).exists():
        return None
    try:
        build.check_tools(binaries.BY_NAME[controller.name])
    except Missing:
        return f"the manifests of {controller.name} come with its Go module: install Go 1.21 or newer"
    return None


def rendered(controller: Controller, programs: Binaries) -> list[Object]:
    """The controller's objects as its module has them; made if they are not in the cache yet."""
    wanted = cached_file(controller)
    if not wanted.exists():
        lacks = missing(controller)
        if lacks:
            raise Missing(lacks)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        text = render(module_folder(controller) / "config/default", programs)
        with tempfile.NamedTemporaryFile("w", dir=wanted.parent, prefix=".making-", delete=False) as scratch:
            json.dump(parse(text), scratch)
        Path(scratch.name).rename(wanted)
    objects: list[Object] = json.loads(wanted.read_text())
    return objects


def module_folder(controller: Controller) -> Path:
    target = binaries.BY_NAME[controller.name]
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    output = output_of(
        [build.check_tools(target), "mod", "download", "-json", controller.module],
        cwd=binaries.GO_FOLDER / target.module, environment=environment,
    )  # fmt: skip
    return Path(json.loads(output)["Dir"])


def render(folder: Path, programs: Binaries) -> str:
    """As JSON values one after the other: kubectl reads YAML, the standard library does not."""
    kubectl = str(programs["kubectl"])
    text = output_of([kubectl, "kustomize", str(folder)])
    return output_of([kubectl, "annotate", "--local", "--filename=-", f"{MARK}=true", "--output=json"], text=text)


def output_of(
    command: list[str], *, text: str | None = None, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )  # fmt: skip
    if done.returncode != 0:
        raise TestbedError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def parse(text: str) -> list[Object]:
    decoder, objects, place = json.JSONDecoder(), [], 0
    text = text.strip()
    while place < len(text):
        item, place = decoder.raw_decode(text, place)
        objects.append(item)
        while place < len(text) and text[place].isspace():
            place += 1
    return objects


def adapt(controller: Controller, items: Sequence[Object], pair: Pair) -> list[Object]:
    """The objects for a test cluster: our image, our certificate, ready sooner. Pure."""
    adapted = copy.deepcopy(list(items))
    authority = encoded(pair.authority)
    for item in adapted:
        kind = item["kind"]
        if kind == "Deployment":
            adapt_pod(controller, item["spec"]["template"]["spec"])
        elif kind == "ConfigMap" and CONFIG_FILE in item.get("data", {}):
            item["data"][CONFIG_FILE] = controller.configure(item["data"][CONFIG_FILE])
        elif kind == "Secret" and item["metadata"]["name"] == controller.secret:
            values = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.authority}
            item["data"] = {name: encoded(value) for name, value in values.items()}
        elif kind.endswith("WebhookConfiguration"):
            for hook in item["webhooks"]:
                hook["clientConfig"]["caBundle"] = authority
        elif kind == "CustomResourceDefinition" and "webhook" in item["spec"].get("conversion", {}):
            item["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = authority
    return adapted


def adapt_pod(controller: Controller, pod: Object) -> None:
    pod["nodeSelector"] = dict(FIRST_NODE)
    for volume in pod["volumes"]:
        # Kueue's third server keeps there the certificate that it makes, or finds the one that it is given.
        if volume["name"] == "visibility":
            volume.pop("emptyDir")
            volume["secret"] = {"secretName": controller.secret}
    for container in pod["containers"]:
        container["image"] = images.reference(controller.name)
        container["imagePullPolicy"] = "IfNotPresent"
        container["command"] = [f"/{controller.name}"]
        container["resources"]["requests"] = {"cpu": "10m", "memory": "64Mi"}
        # Metrics are served with a certificate as well.
        metrics = f"/etc/{controller.name}/metrics/certs"
        container["volumeMounts"].append({"name": "cert", "mountPath": metrics, "readOnly": True})
        container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1, "failureThreshold": 60}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def serving_pair(cluster: Cluster, programs: Binaries, controller: Controller) -> Pair:
    name = f"{controller.name}-webhook"
    certificates.make(cluster, programs, [Certificate(name, name, hosts=controller.hosts)])
    parts = (cluster.pki / file for file in (f"{name}.crt", f"{name}.key", "ca.crt"))
    return Pair(*(part.read_text() for part in parts))


def start(cluster: Cluster, programs: Binaries, with_api: api.Api, controller: Controller) -> None:
    """Apply the objects; `is_ready` says when the controller and its webhooks work."""
    pair = serving_pair(cluster, programs, controller)
    with_api.apply(adapt(controller, rendered(controller, programs), pair))


def is_ready(with_api: api.Api, controller: Controller) -> bool:
    deployment = with_api.get(api.path_of("Deployment", "apps/v1", controller.space, controller.deployment))
    if not deployment or not deployment.get("status", {}).get("readyReplicas"):
        return False
    # The service leads to the new pod a moment later.
    path = api.path_of_object(controller.sample).rpartition("/")[0]
    with_api.call("POST", f"{path}?dryRun=All", controller.sample)
    return True
