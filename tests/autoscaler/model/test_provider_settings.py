"""`providers` of the pools file: settings by name, and mistakes with their line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.autoscaler.model.pools_file import read_pools, read_providers
from longboat.autoscaler.model.provider_settings import CloudSettings, ExecSettings, KwokSettings
from longboat.autoscaler.providers.registry import open_providers
from longboat.core.errors import JobError, UsageError

FILE = """
pools:
- {name: a, provider: metal, max: 3, machine: {cpus: 4, memory: 8Gi}}
- {name: b, max: 3, machine: {cpus: 4, memory: 8Gi}}
- {name: c, provider: slow, max: 3, machine: {cpus: 4, memory: 8Gi}}
providers:
  metal: {list: [./list], grow: ./grow | tee log, shrink: [./shrink, now], timeout: 5s, env: {TOKEN_FILE: /x}}
  slow: {kind: kwok, ready_after: 20s, gpus_after: 10s}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pools.yaml"
    path.write_text(text)
    return path


def test_providers_are_read_from_the_pools_file(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    found = read_providers(path)
    metal, slow = found["metal"], found["slow"]
    assert isinstance(metal, ExecSettings) and isinstance(slow, KwokSettings)
    assert (metal.list, metal.grow, metal.timeout_s) == (("./list",), "./grow | tee log", 5.0)
    assert metal.folder == str(tmp_path) and metal.describe is None
    assert (slow.ready_after_s, slow.gpus_after_s) == (20.0, 10.0)
    pools, _ = read_pools(path)
    assert set(open_providers(pools, found, None, "x")) == {"metal", "kwok", "slow"}  # type: ignore[arg-type]


CLOUD_FILE = "providers: {aws: {cluster: vision, region: us-east-1}, other: {kind: aws, cluster: b, region: r}}\n"


def test_a_cloud_needs_no_pools_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, CLOUD_FILE)
    assert read_pools(path)[0] == ()
    found = read_providers(path)
    assert found["aws"] == CloudSettings(cloud="aws", cluster="vision", region="us-east-1")
    assert found["other"] == CloudSettings(cloud="aws", cluster="b", region="r")
    path = write(tmp_path, "providers: {azure: {cluster: lab, resource_group: rg.1_(x)}}\n")
    assert read_providers(path)["azure"] == CloudSettings(cloud="azure", cluster="lab", resource_group="rg.1_(x)")
    path = write(tmp_path, "providers: {aws: {cluster: vision, region: us-east-1, growth: 45m}}\n")
    spot = read_providers(path)["aws"]
    assert isinstance(spot, CloudSettings) and spot.growth_s == 2700.0
    path = write(tmp_path, "providers: {gcp: {cluster: lab, region: us-central1-a}}\n")
    assert read_providers(path)["gcp"] == CloudSettings(cloud="gcp", cluster="lab", region="us-central1-a")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("settings: {}\n", 'the field "pools" is missing'),
        ("providers: {aws: {cluster: x}}\n", 'the field "region" is missing'),
        ("providers: {aws: {cluster: x, region: y, list: [z]}}\n", "is not a setting of a provider of the kind exec"),
        ("providers: {aws: {cluster: 'x y', region: z}}\n", "expected a name of letters"),
        ("providers: {azure: {cluster: x}}\n", 'the field "resource_group" is missing'),
        ("providers: {azure: {cluster: x, resource_group: a/b}}\n", "expected a name of letters"),
        ("providers: {gcp: {cluster: x, project: y}}\n", 'the field "region" is missing'),
        ("providers: {azure: {cluster: x, resource_group: a, region: b}}\n", "region is not a setting"),
    ],
)
def test_mistakes_about_clouds(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(JobError) as caught:
        read_pools(write(tmp_path, text))
    assert words in caught.value.message


MISTAKES: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text.replace("list: [./list], ", ""), "kind"),
    (lambda text: text.replace("list: [./list]", "kind: exec"), '"list" is missing'),
    (lambda text: text.replace("kind: kwok", "kind: kwok, list: [x]"), "list is not a setting"),
    (lambda text: text.replace("timeout: 5s", "timeout: soon"), "timeout"),
    (lambda text: text.replace("timeout", "timeouts"), "unknown field"),
]


@pytest.mark.parametrize(("change", "words"), MISTAKES)
def test_mistakes_in_providers_have_their_line(tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    with pytest.raises(JobError) as caught:
        read_providers(write(tmp_path, change(FILE)))
    assert words in caught.value.message and "pools.yaml:" in caught.value.message


def test_an_unknown_provider_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, FILE.replace("provider: metal", "provider: ibm"))
    with pytest.raises(UsageError, match="pool a: no provider ibm; there are: kwok, metal, slow"):
        open_providers(read_pools(path)[0], read_providers(path), None, "x")  # type: ignore[arg-type]
