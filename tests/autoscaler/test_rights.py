"""The rights that docs/autoscaler.md names are those that the autoscaler uses: its requests are counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from longboat.autoscaler.report.events import Events
from longboat.autoscaler.report.status import Reporter
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import ApiRequest, Transport
from longboat.kubeapi.leases import Lease
from tests.autoscaler.act.test_actuator import scatter
from tests.autoscaler.stages import Stage, wait_for

pytestmark = [pytest.mark.cluster]

DOCS = Path(__file__).resolve().parents[2] / "docs" / "autoscaler.md"
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/(?=[^/]+/)[^/]+)?"
    r"/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[^/]+))?$"
)
Right = tuple[str, str, str]
ELSEWHERE = re.compile(r"jobset|kueue|volcano|scheduling\.x-k8s\.io|podgroups|workloads")
"""Used where these are served; this cluster has none of them."""


def documented() -> set[Right]:
    text = next(block for block in DOCS.read_text().split("```yaml\n") if "kind: ClusterRole" in block)
    rules = yaml.safe_load(text.partition("```")[0])["rules"]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def right_of(ask: ApiRequest) -> Right | None:
    parts = urlsplit(ask.path)
    found = PATH.match(parts.path)
    if found is None:
        return None  # what the server offers: everybody may see that
    kind = found["kind"] + (f"/{found['part']}" if found["part"] else "")
    reading = "watch" if "watch=true" in parts.query else "get" if found["name"] else "list"
    verbs = {"GET": reading, "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
    return (found["group"] or "", kind, verbs[ask.method])


def test_every_documented_right_is_used_and_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[Right] = set()
    client = Client.open(namespace=stage.namespace, environment=stage.environment)
    for name in ("request", "stream"):
        ask = getattr(Transport, name)

        def counted(self: Transport, wanted: ApiRequest, *args: Any, ask: Any = ask, **more: Any) -> Any:
            right = right_of(wanted)
            if self is client.transport and right is not None:
                used.add(right)
            return ask(self, wanted, *args, **more)

        monkeypatch.setattr(Transport, name, counted)
    lease = Lease(client, stage.namespace, "longboat-autoscaler", "me")
    assert lease.try_hold() and lease.try_hold()
    Lease(client, stage.namespace, "longboat-autoscaler", "you").try_hold()
    pool = stage.pool("cpu", machine={"gpus": 0}, max=3)
    with client, stage.scaling(stage.config(pool), client=client) as told:
        scatter(stage)
        wait_for("one machine is left", lambda: len(stage.machines()) == len(stage.nodes()) == 1)
        events, reporter = Events(client, stage.namespace, print), Reporter(client, stage.namespace, "me", print)
        for turn in list(told.turns):
            events.turned(turn)
            reporter.turned(turn)
        lease.release()
    known = documented()
    assert used - known == {("", "nodes", "create")}, "of the simulated provider"
    unused = {right for right in known - used if not ELSEWHERE.search(" ".join(right))}
    assert unused == set()
