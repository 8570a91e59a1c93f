"""Mistakes of a cluster file of a cloud: all at once, with line and column; and what its defaults are."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clusters.cloud.spec import CloudPool, CloudSpec
from longboat.clusters.cluster_file import read_cluster
from longboat.core.errors import JobError

HEAD = "name: lab\nkind: aws\nregion: us-east-1\n"


def problems(text: str, folder: Path) -> list[str]:
    (folder / "cluster.yaml").write_text(text)
    with pytest.raises(JobError) as caught:
        read_cluster(folder / "cluster.yaml")
    return [str(problem).removeprefix(f"{folder}/cluster.yaml:") for problem in caught.value.problems]


def cloud(text: str, folder: Path) -> CloudSpec:
    (folder / "cluster.yaml").write_text(text)
    spec = read_cluster(folder / "cluster.yaml").cloud
    assert spec is not None
    return spec


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = """\
name: lab
kind: aws
region: us-east-9
network: {nodes: hidden}
pools:
- {name: gpu, type: m5.large, gpu: true}
- {name: gpu, type: g5.xlrage, min: 3, max: 2}
- {name: far, type: m5.large, zones: [eu-west-1a, us-east-1b], count: 5, max: 4}
- {typ: m5.large}
hosts: [a]
"""
    assert problems(text, tmp_path) == [
        "3:9: region: no region us-east-9 is known; us-east has us-east-1, us-east-2",
        '4:18: network.nodes: found the text "hidden", expected one of private, public',
        "6:21: pools.0.type: m5.large has no GPUs, and the pool asks for them",
        "7:10: pools.1.name: pools.0 has the same name",
        "7:21: pools.1.type: g5.xlrage is not in the table of machine types; did you mean g5.xlarge?",
        "7:37: pools.1.min: min (3) is more than max (2)",
        "8:71: pools.2.count: count (5) is more than max (4)",
        '9:3: pools.3: the field "name" is missing: a-z, 0-9 and -, beginning with a letter, '
        "not ending with -, at most 40 characters",
        '9:3: pools.3: the field "type" is missing: a machine type such as g5.xlarge',
        '9:4: pools.3.typ: unknown field; did you mean "type"?',
        "10:1: hosts: unknown field; allowed: name, kind, region, version, pools, tags, addons, image, machines, "
        "network, storage",
    ]


def test_hints_for_what_yaml_reads_otherwise(tmp_path: Path) -> None:
    pool = "{name: a, type: Standard_D4s_v5, zones: [1]}"
    (tmp_path / "cluster.yaml").write_text(f"name: lab\nkind: azure\nregion: westeurope\npools:\n- {pool}\n")
    with pytest.raises(JobError) as caught:
        read_cluster(tmp_path / "cluster.yaml")
    (problem,) = caught.value.problems
    assert str(problem).endswith("cluster.yaml:5:44: pools.0.zones.0: found the number 1, expected one of 1, 2, 3")
    assert problem.hint == 'quote it: "1"'
    one = "network: {zones: [us-east-1a]}\npools: [{name: a, type: m5.large}]\n"
    assert problems(f"name: lab\nkind: aws\nregion: us-east-1\n{one}", tmp_path) == [
        "4:18: network.zones: found 1 item, expected a list of zones, 2 to 6 of them"
    ]


def test_regions_in_china_are_known(tmp_path: Path) -> None:
    text = "name: lab\nkind: aws\nregion: cn-north-1\npools: [{name: a, type: m5.large}]\n"
    assert cloud(text, tmp_path).region == "cn-north-1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "pools: [{name: a-1, type: m5.large}, {name: a1, type: m5.large}]",
            "pools.0 has the same name, but for dashes",
        ),
        ("pools: [{name: a, type: m5.large}]\naddons: [autoscaler]", "autoscaler needs an image that has Longboat"),
        (
            "pools: [{name: a, type: m5.large, min: 0, max: 3}]\naddons: [autoscaler]\nimage: x",
            "the autoscaler needs a pool without taints that is never empty",
        ),
        ("pools: [{name: a, type: m5.large, zones: [us-east-1b]}]", "EKS needs two zones, and the pools name only one"),
        (
            "network: {zones: [us-east-1a, us-east-1b]}\npools: [{name: a, type: m5.large, zones: [us-east-1c]}]",
            "us-east-1c is not among network.zones: us-east-1a, us-east-1b",
        ),
        (
            "pools: [{name: a, type: m5.large, placement_group: new, zones: [us-east-1a, us-east-1b]}]",
            "a placement group lies in one zone, and the pool has several",
        ),
        (
            "pools: [{name: a, type: m5.large, spot: true, reservation: cr-01234567}]",
            "a reservation is not for spot machines",
        ),
        ("pools: [{name: a, type: m5.large}]\nmachines: none.csv", "none.csv: cannot be read: No such file"),
        ("network: {vpc: vpc-01234567}\npools: [{name: a, type: m5.large}]", "vpc and subnets belong together"),
        (
            "network: {vpc: vpc-01234567, subnets: {us-east-1a: subnet-01234567}}\npools: [{name: a, type: m5.large}]",
            "EKS needs subnets in two zones",
        ),
        (
            "network: {cidr: 10.0.0.0/16, vpc: vpc-01234567, subnets: {}}\npools: [{name: a, type: m5.large}]",
            "cidr is of a new network",
        ),
        ("network: {cidr: 8.8.0.0/16}\npools: [{name: a, type: m5.large}]", "8.8.0.0/16 is not private"),
        ("network: {cidr: 10.0.0.0/24}\npools: [{name: a, type: m5.large}]", "expected a network from /16 to /20"),
        ("tags: {'aws:x': a}\npools: [{name: a, type: m5.large}]", 'found the key "aws:x"'),
        ("tags: {x: 'a;b'}\npools: [{name: a, type: m5.large}]", "expected the value of a tag"),
        ("pools: []", "found 0 items"),
        ("addons: [storage]\npools: [{name: a, type: m5.large}]", "expected one of gpu, jobset"),
        ("version: 1.35\npools: [{name: a, type: m5.large}]", "found the number 1.35"),
    ],
)
def test_what_does_not_fit_together(text: str, message: str, tmp_path: Path) -> None:
    (problem,) = problems(HEAD + text, tmp_path)
    assert message in problem


def test_a_region_newer_than_the_list_is_taken(tmp_path: Path) -> None:
    text = "name: lab\nkind: aws\nregion: xx-middle-1\npools: [{name: a, type: m5.large}]"
    assert cloud(text, tmp_path).region == "xx-middle-1"


def test_defaults_of_sizes(tmp_path: Path) -> None:
    pools = "pools:\n- {name: a, type: m5.large}\n- {name: b, type: m5.large, min: 0, max: 4}\n"
    pools += "- {name: c, type: m5.large, count: 2, max: 4}\n- {name: d, type: m5.large, count: 0}\n"
    sizes = [(pool.min, pool.count, pool.max) for pool in cloud(HEAD + pools, tmp_path).pools]
    assert sizes == [(1, 1, 1), (0, 0, 4), (2, 2, 4), (0, 0, 1)]


def test_a_gpu_pool_brings_the_add_on(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(HEAD + "pools: [{name: a, type: g5.xlarge}]")
    assert read_cluster(tmp_path / "cluster.yaml").addons == ("gpu", "controller")
    (tmp_path / "cluster.yaml").write_text(HEAD + "pools: [{name: a, type: g5.xlarge, gpu: false}]")
    spec = read_cluster(tmp_path / "cluster.yaml")
    assert spec.addons == ("controller",)
    assert spec.cloud is not None and spec.cloud.pools == (CloudPool(name="a", type="g5.xlarge"),)


def test_a_file_adds_machine_types(tmp_path: Path) -> None:
    table = "# Ours, 2026-11.\ntype,cpus,memory_gib,gpus,gpu,gpu_memory_gib,price\nx9.huge,8,64,2,Z1,48,7.5\n"
    (tmp_path / "own.csv").write_text(table)
    spec = cloud(HEAD + "machines: own.csv\npools: [{name: a, type: x9.huge}]", tmp_path)
    assert (spec.pools[0].gpus, spec.machines) == (2, str(tmp_path / "own.csv"))
