"""The table of the cluster file, its JSON schema and the page of documentation agree."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.fields.cluster_fields import FILE, cluster_schema
from longboat.clusters.versions import TESTED
from longboat.core.errors import JobError
from longboat.specs.fields.composites import all_fields
from longboat.specs.yaml.yaml12 import parse_text
from longboat.specs.yaml.yaml_tree import Mistakes, plain
from testbed.binaries import KUBERNETES_VERSION, PREVIOUS_VERSION

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "clusters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
FIELDS = all_fields(FILE)


def complaints(text: str) -> list[str]:
    node = parse_text(text, file="x", mistakes=Mistakes())
    assert node is not None
    validator = jsonschema.Draft202012Validator(cluster_schema())
    return [error.message for error in validator.iter_errors(plain(node))]


def rows() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in PAGE.partition("### Fields")[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            found[cells[0].strip("`")] = cells
    return found


def test_the_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(cluster_schema())


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_of_the_page_are_read_and_fit_the_schema(block: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(block)
    read_cluster(tmp_path / "cluster.yaml")
    assert complaints(block) == []


@pytest.mark.parametrize(
    "text",
    [
        "hosts: [a]",
        "{name: A, hosts: [a]}",
        "{name: a, kind: cloud}",
        "{name: a, hosts: [{adress: a}]}",
        "{name: a, hosts: [{address: a, port: 0}]}",
        "{name: a, hosts: [{address: a, gpu: maybe}]}",
        "{name: a, hosts: [{address: a, taints: [x]}]}",
        "{name: a, versions: 1.36}",
        "{name: a, network: calico}",
        "{name: a, addons: [dashboard]}",
        "{name: a, kubelet: {MaxPods: 1}}",
    ],
)
def test_what_is_refused_is_refused_by_the_schema_too(text: str, tmp_path: Path) -> None:
    assert complaints(text)
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(JobError):
        read_cluster(tmp_path / "cluster.yaml")


def test_the_page_has_every_field_and_no_other() -> None:
    assert set(rows()) == {name for name in FIELDS if not name.startswith("defaults.")}
    sentence = re.search(r"`defaults` has the fields (.*?);", PAGE.replace("\n", " "))
    assert sentence is not None
    own = {name.removeprefix("defaults.") for name in FIELDS if re.fullmatch(r"defaults\.\w+", name)}
    assert set(re.findall(r"`(\w+)`", sentence[1])) == own


@pytest.mark.parametrize("name", sorted(rows()))
def test_the_page_has_the_defaults_of_the_table(name: str) -> None:
    told, field = rows()[name][1].strip("`"), FIELDS[name]
    if field.required:
        assert told == "required"
    elif " " not in field.default:
        assert told == field.default


def test_the_page_has_the_versions_that_are_tested() -> None:
    table = re.findall(r"^\| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|$", PAGE, re.MULTILINE)
    assert [each.kubernetes for each in TESTED] == [KUBERNETES_VERSION, PREVIOUS_VERSION], "what test hosts are made of"
    assert table == [(each.kubernetes, each.containerd, each.flannel) for each in TESTED]


def test_messages_of_the_page_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, messages = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(text)
    with pytest.raises(JobError) as caught:
        read_cluster("cluster.yaml")
    assert [str(problem) for problem in caught.value.problems] == messages.splitlines()
