"""The schema is valid, agrees with what `read_job` accepts, and so does the page of documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from longboat.core.errors import JobError
from longboat.specs.fields.composites import all_fields
from longboat.specs.fields.job_fields import JOB
from longboat.specs.read import read_job
from longboat.specs.schema import job_schema
from longboat.specs.yaml.yaml12 import parse_text
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "job-file.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
FIELDS = all_fields(JOB)


def values(node: YamlNode | None) -> Any:
    assert node is not None
    if isinstance(node.value, dict):
        return {key: values(item) for key, item in node.value.items()}
    return [values(item) for item in node.value] if isinstance(node.value, list) else node.value


def parsed(text: str) -> Any:
    mistakes = Mistakes()
    node = parse_text(text, file="x", mistakes=mistakes)
    mistakes.raise_if_any()
    return values(node)


def complaints(instance: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(job_schema())
    return [error.message for error in validator.iter_errors(instance)]


def test_schema_is_valid() -> None:
    schema = job_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == {field.name for field in JOB.fields}


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_of_the_page_load_and_fit_the_schema(block: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(block, encoding="utf-8")
    read_job([file], environment={})
    assert complaints(parsed(block)) == []


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize(
    ("name", "example"), [(name, field.example) for name, field in FIELDS.items() if field.example]
)
def test_examples_of_the_table_load_and_fit_the_schema(name: str, example: str) -> None:
    wrapped: Any = parsed(f"x: {example}")["x"]
    for part in reversed(re.split(r"\.(?=[a-z_])", name.replace("[]", ".ITEM").replace("NAME", "name"))):
        key = {"name": "/mnt/a" if name.startswith("volumes") else "X"}.get(part, part) if "NAME" in name else part
        wrapped = {key: wrapped}
    if name.startswith("data[]"):
        rest = {"url": "https://a/b", "to": "c"}
        wrapped = {"data": [{**rest, name.removeprefix("data[]."): parsed(f"x: {example}")["x"]}]}
    if name.startswith("roles.NAME"):
        wrapped = {"roles": {"worker": {name.split(".", 2)[2]: parsed(f"x: {example}")["x"]}}}
    if name.startswith(("nodes.", "roles.NAME.nodes.")):
        wrapped = {"nodes": {"min": 2, "max": 8}}
    if name.endswith("spares"):
        wrapped = {**wrapped, "nodes": 2, "retries": 3}
    if name.startswith("roles.NAME.gpus."):
        wrapped = {"gpus": {name.rsplit(".", 1)[1]: parsed(f"x: {example}")["x"]}}
    if re.fullmatch(r"volumes\.NAME\.read_only", name):
        wrapped["volumes"]["/mnt/a"]["path"] = "x"
    if re.fullmatch(r"volumes\.NAME\.(size|class|access)", name):
        wrapped["volumes"]["/mnt/a"] = {"claim": "x", "size": "1Gi", **wrapped["volumes"]["/mnt/a"]}
    if name.startswith("sweep."):
        wrapped["sweep"] = {"lr": [0.1], "trials": 3, **wrapped["sweep"]}
    if name == "sweep.metric.goal":
        wrapped["sweep"]["metric"]["name"] = "loss"
    job = {"run": "x", **wrapped}
    assert complaints(job) == []
    read_job([], fields=job, environment={})


@pytest.mark.parametrize(
    "text",
    [
        "run: x\nnodes: 0",
        "run: x\nnodes: two",
        "run: x\ngpu: 1",
        "run: x\ngpus: {cuont: 1}",
        "run: x\ngpus: 'H100:'",
        "run: x\nmemory: 16Gx",
        "run: x\ntimeout: '12:30'",
        "run: x\nframework: pytorch",
        "run: x\nname: My Job",
        "run: x\nenv: {A: [1]}",
        "run: x\nenv: {A-B: 1}",
        "run: x\nsecrets: {A: value}",
        'run: x\nvolumes: {"~/data": x}',
        "run: x\ndata: [{url: 'https://a/b'}]",
        "run: x\nretries: {on: [nothing]}",
        "run: x\nroles: {A: {}}",
        "run: x\naliases: [sky]",
        "run: []",
    ],
)
def test_what_is_refused_is_refused_by_the_schema_too(text: str) -> None:
    assert complaints(parsed(text))
    with pytest.raises(JobError):
        read_job([], fields=parsed(text), environment={})


@pytest.mark.parametrize("text", ["run: x\nnodes: ${N}", "run: x\nmemory: ${M}", "run: x\nworkdir: null"])
def test_variables_and_null_fit_the_schema(text: str) -> None:
    assert complaints(parsed(text)) == []


def rows() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 5:
            found[cells[0].strip("`")] = cells
    return found


def test_the_page_has_every_field_and_no_other() -> None:
    assert set(rows()) == {name for name in FIELDS if not name.startswith("roles.NAME")}


def test_the_page_names_the_fields_of_a_role() -> None:
    sentence = re.search(r"A role has the fields (.*?)\. ", PAGE.replace("\n", " "))
    assert sentence is not None
    own = {name.split(".")[2] for name in FIELDS if name.startswith("roles.NAME.")}
    assert set(re.findall(r"`(\w+)`", sentence.group(1))) == own


@pytest.mark.parametrize("name", sorted(rows()))
def test_the_page_has_the_defaults_of_the_table(name: str) -> None:
    told, field = rows()[name][2].strip("`"), FIELDS[name]
    is_literal = re.fullmatch(r"[0-9]+s?|\[\]|\{\}|true|false|\.|off", field.default)
    if is_literal or field.required:
        assert told == ("required" if field.required else field.default)


def test_messages_of_the_page_are_real(tmp_path: Path) -> None:
    block = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    (tmp_path / "job.yaml").write_text(
        "run: x\ngpu: 1\nnodes: two\nroles:\n  worker:\n    memory: 16Gx\n", encoding="utf-8"
    )
    with pytest.raises(JobError) as caught:
        read_job([Path("job.yaml")], environment={}, overrides=["procs=0"], cwd=tmp_path)
    assert sorted(str(problem) for problem in caught.value.problems) == sorted(block.group(1).splitlines())


def test_schema_is_plain_json() -> None:
    import json

    assert yaml.safe_load(json.dumps(job_schema())) == job_schema()
