"""What a region must have before anything is made: zones, machine types, versions, quotas."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from longboat.clouds.aws.session import AwsSession
from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.aws.observe import see_use
from longboat.clusters.cloud.aws.preflight import (
    RegionView,
    check_version,
    choose_zones,
    quota_of,
    quota_problems,
)
from longboat.clusters.cloud.spec import CloudNetwork, CloudPool, CloudSpec
from longboat.core.errors import Refused
from tests.clouds.aws.moto_cluster import MotoCluster

ZONES = tuple((f"us-east-1{letter}", f"use1-az{number}") for letter, number in zip("abcdef", (4, 6, 1, 2, 3, 5)))
GPU = CloudPool(name="gpu", type="g5.xlarge", count=4, min=0, max=100, gpus=1)
CPU = CloudPool(name="cpu", type="m5.large")


def spec(*pools: CloudPool, **network: object) -> CloudSpec:
    return CloudSpec(region="us-east-1", pools=pools, network=CloudNetwork(**network))


def offers(**zones: str) -> frozenset[tuple[str, str]]:
    return frozenset(
        (kind.replace("_", "."), f"us-east-1{letter}") for kind, letters in zones.items() for letter in letters
    )


def test_zones_that_offer_the_machines_are_chosen() -> None:
    region = RegionView(zones=ZONES, offers=offers(g5_xlarge="bdef", m5_large="abcdef"))
    assert choose_zones(spec(CPU, GPU), region) == ("us-east-1b", "us-east-1d", "us-east-1f")  # e has no control plane
    assert choose_zones(spec(CPU), RegionView(zones=ZONES)) == ("us-east-1a", "us-east-1b", "us-east-1c")


def test_a_pool_whose_machines_are_not_there() -> None:
    region = RegionView(zones=ZONES, offers=offers(g5_xlarge="d", m5_large="abcdef"))
    with pytest.raises(Refused, match="pool gpu: us-east-1a, us-east-1b offer no g5.xlarge: the zones us-east-1d have"):
        choose_zones(spec(GPU, zones=("us-east-1a", "us-east-1b")), region)
    rare = CloudPool(name="rare", type="p5.48xlarge")
    with pytest.raises(Refused, match="no zone of the region has them"):
        choose_zones(spec(rare), region)
    with pytest.raises(Refused, match="us-east-1z is no zone of the account"):
        choose_zones(spec(CPU, zones=("us-east-1a", "us-east-1z")), region)
    with pytest.raises(Refused, match="has 2 usable zones"):
        choose_zones(spec(CPU), RegionView(zones=ZONES[:2]))


def test_versions() -> None:
    check_version(spec(CPU), RegionView(zones=ZONES))
    check_version(spec(CPU), RegionView(zones=ZONES, versions=("1.36", "1.35")))
    with pytest.raises(Refused) as caught:
        check_version(spec(CPU), RegionView(zones=ZONES, versions=("1.37", "1.36")))
    assert caught.value.hint == "version: one of 1.37, 1.36"


def test_quotas_are_counted_in_cpus_by_family() -> None:
    table = shipped_table("aws")
    pools = (CPU, GPU, CloudPool(name="p", type="p5.48xlarge", spot=True))
    known = [quota_of(pool.type, spot=pool.spot) for pool in pools]
    assert [quota[0] for quota in known if quota] == ["L-1216C47A", "L-DB2E81BA", "L-C4BD4855"]
    assert quota_problems(spec(CPU, GPU), table, {}, {}) == ([], [])
    now, later = quota_problems(spec(CPU, GPU), table, {"L-DB2E81BA": 8.0, "L-1216C47A": 2.0}, {})
    assert now == ["quota L-DB2E81BA (Running On-Demand G and VT instances): 8 CPUs are allowed, 16 are needed"]
    now, later = quota_problems(spec(GPU), table, {"L-DB2E81BA": 64.0}, {})
    assert (now, len(later)) == ([], 1) and "400 are needed" in later[0]


def test_what_runs_already_counts_towards_a_quota() -> None:
    table, quotas = shipped_table("aws"), {"L-DB2E81BA": 400.0, "L-1216C47A": 32.0}
    now, later = quota_problems(spec(CPU, GPU), table, quotas, {"L-DB2E81BA": 390.0, "L-7212CCBC": 96.0})
    assert now == [
        "quota L-DB2E81BA (Running On-Demand G and VT instances): 400 CPUs are allowed, 390 are in use, 16 are needed"
    ]
    none = CloudPool(name="gpu", type="g5.xlarge", count=0, min=0, max=1, gpus=1)
    now, later = quota_problems(spec(none), table, quotas, {"L-DB2E81BA": 404.0})
    assert now == [] and "404 are in use, 4 are needed" in later[0]


class Ec2(AwsSession):
    """One answer of AWS: moto has no capacity blocks, no hosts of one's own."""

    machines: ClassVar[list[dict[str, Any]]] = []

    def ask(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        assert (service, operation) == ("ec2", "describe_instances")
        return {"Reservations": [{"Instances": self.machines}]}


@pytest.mark.parametrize(
    ("kind", "more", "code"),
    [
        ("m7i.large", {}, "L-1216C47A"),
        ("i4i.large", {"Placement": {"Tenancy": "default"}}, "L-1216C47A"),
        ("vt1.3xlarge", {}, "L-DB2E81BA"),
        ("p5.48xlarge", {"InstanceLifecycle": "spot"}, "L-C4BD4855"),
        ("p5.48xlarge", {"InstanceLifecycle": "capacity-block"}, None),
        ("g5.xlarge", {"Placement": {"Tenancy": "host"}}, None),
        ("trn1.32xlarge", {}, None),
        ("inf2.48xlarge", {}, None),
        ("hpc7a.96xlarge", {"InstanceLifecycle": "spot"}, None),
        ("u-6tb1.metal", {}, None),
    ],
)
def test_machines_with_a_quota_of_their_own_count_towards_no_other(
    kind: str, more: dict[str, Any], code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"InstanceType": kind, "CpuOptions": {"CoreCount": 64, "ThreadsPerCore": 2}, **more}
    monkeypatch.setattr(Ec2, "machines", [body])
    assert see_use(Ec2("us-east-1"), shipped_table("aws")) == ({code: 128.0} if code else {})


def test_machines_of_the_account_are_counted(moto: MotoCluster) -> None:
    """On a server that plays EC2: machines that run, by family, whether spot or not; those that ended do not count."""
    session = moto.session
    before = see_use(session, shipped_table("aws"))
    image = session.call("ec2", "describe_images")["Images"][0]["ImageId"]
    two: dict[str, Any] = {"ImageId": image, "InstanceType": "g5.xlarge", "MinCount": 2, "MaxCount": 2}
    ids = []
    for market in ({}, {"InstanceMarketOptions": {"MarketType": "spot"}}):
        made = session.call("ec2", "run_instances", **two, **market)["Instances"]
        ids += [each["InstanceId"] for each in made]
    after = see_use(session, shipped_table("aws"))
    more = {code: count - before.get(code, 0.0) for code, count in after.items() if count != before.get(code)}
    assert more == {"L-DB2E81BA": 8.0, "L-3819A6DF": 8.0}, "other tests have machines there, too"
    session.call("ec2", "terminate_instances", InstanceIds=ids)
    left = see_use(session, shipped_table("aws"))
    assert {code: count for code, count in left.items() if count} == {c: n for c, n in before.items() if n}
