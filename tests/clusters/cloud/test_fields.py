"""The table of a cloud's cluster file, its JSON schema and the page of documentation agree."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from longboat.clusters.cloud.kinds import CLOUDS
from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.fields.cluster_fields import cluster_schema
from longboat.specs.fields.composites import all_fields
from longboat.specs.yaml.yaml12 import parse_text
from longboat.specs.yaml.yaml_tree import Mistakes, plain

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "clouds.md").read_text(encoding="utf-8")
FIELDS = {kind: all_fields(shape) for kind, (shape, _) in CLOUDS.items()}


def complaints(text: str) -> list[str]:
    node = parse_text(text, file="x", mistakes=Mistakes())
    assert node is not None
    return [error.message for error in jsonschema.Draft202012Validator(cluster_schema()).iter_errors(plain(node))]


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_blocks_of_the_page_are_read_and_fit_the_schema(block: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(block)
    assert read_cluster(tmp_path / "cluster.yaml").cloud is not None
    assert complaints(block) == []


def test_the_schema_refuses_fields_of_other_kinds() -> None:
    assert complaints("{name: a, kind: aws, region: us-east-1, hosts: [a], pools: [{name: a, type: m5.large}]}")
    assert complaints("{name: a, kind: aws, pools: [{name: a, type: m5.large}]}")


@pytest.mark.parametrize(
    ("kind", "title"), [("aws", "### Fields"), ("azure", "### Fields of Azure"), ("gcp", "### Fields of Google Cloud")]
)
def test_the_page_has_every_field_with_its_default_and_no_other(kind: str, title: str) -> None:
    lines = PAGE.partition(f"{title}\n")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    rows = {row[0].strip("`"): row[1].strip("`") for row in cells}
    shared = set(FIELDS["aws"]) if kind != "aws" else set()
    wanted = {name: field for name, field in FIELDS[kind].items() if name not in shared or name in rows}
    assert set(rows) == set(wanted)
    for name, field in wanted.items():
        if field.required:
            assert rows[name] == "required", name
        elif " " not in field.default:
            assert rows[name] == field.default, name
