"""A submitter that takes its time says that it lives, on the record itself, and nobody gives its run up meanwhile."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.observe.observe import observe, snapshot_of
from longboat.engines.kubernetes.reconcile.handover import HANDOVER_S, handover_due
from longboat.engines.kubernetes.record_store import ALIVE
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.submit.submission_heartbeat import BEAT_S, beating
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP
from testbed import api
from tests.engines.kubernetes.manifest_samples import record


def body(text: str | None) -> dict[str, object]:
    made = objects.record_object(record(), State())
    made["metadata"]["annotations"] = {} if text is None else {ALIVE: text}
    return made


@pytest.mark.parametrize("text", [None, "", "soon", "-5", "1e300", "9" * 400, "\u0663"])
def test_an_invalid_heartbeat_time_counts_as_none(text: str | None) -> None:
    assert snapshot_of(body(text), workloads=(), pods=()).submitter_alive == 0.0


def test_a_beat_or_two_may_be_lost() -> None:
    assert snapshot_of(body("1800000000"), workloads=(), pods=()).submitter_alive == 1_800_000_000.0
    assert 3 * BEAT_S < HANDOVER_S


@pytest.mark.cluster
def test_the_record_tells_while_the_submitter_works(client: Client) -> None:
    client.create(objects.record_object(record(name="slow", namespace=client.namespace), State()))
    with beating(client, "slow", every_s=0.1):
        api.wait_for("it beats", lambda: observe(client, "slow", 0.0).submitter_alive > 0, 30.0, every_s=0.1)
        assert handover_due(observe(client, "slow", 0.0)) > client.now() + HANDOVER_S / 2
    client.delete(CONFIG_MAP, "slow")
    with beating(client, "slow", every_s=0.01):
        pass  # a record that was removed meanwhile ends nothing
