"""Text to trees: positions, YAML 1.2, everything hostile."""

from __future__ import annotations

import math

import pytest
import yaml

from longboat.specs.yaml import yaml12
from longboat.specs.yaml.yaml_tree import Mistakes, YamlNode, resolve


def parse(text: str | bytes, file: str = "job.yaml") -> tuple[YamlNode | None, list[str]]:
    mistakes = Mistakes()
    data = text if isinstance(text, bytes) else text.encode()
    node = yaml12.parse_bytes(data, file=file, mistakes=mistakes)
    return node, [str(problem) for problem in mistakes.problems]


def plain(node: YamlNode | None) -> object:
    if node is None or node.is_scalar:
        return None if node is None else node.value
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    return [plain(item) for item in node.value] if isinstance(node.value, list) else None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("1e-3", 0.001),
        ("08", 8),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("-7", -7),
        (".5", 0.5),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("9" * 41, "9" * 41),
        ("2024-01-01", "2024-01-01"),
        ("-", "-"),
    ],
)
def test_core_schema(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


def test_nan() -> None:
    value = resolve(".nan")
    assert isinstance(value, float) and math.isnan(value)


def test_positions_of_keys_and_values() -> None:
    node, faults = parse("a: 1\nb:\n  c: [x, {d: 2}]\n")
    assert not faults and node is not None and isinstance(node.value, dict)
    assert node.keys["b"][1:] == (2, 1)
    below = node.value["b"]
    assert isinstance(below.value, dict) and below.keys["c"][1:] == (3, 3)
    items = below.value["c"].value
    assert isinstance(items, list) and items[0].place[1:] == (3, 7) and items[1].keys["d"][1:] == (3, 11)


def test_json_is_read_too() -> None:
    node, faults = parse('{"run":"x",\n\t"nodes":2, "name": "\\ud83d\\ude00"}', "job.json")
    assert not faults
    assert plain(node) == {"run": "x", "nodes": 2, "name": "\N{GRINNING FACE}"}


def test_merge_keys_and_aliases() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {z: 4}]}\nd: &d [1]\ne: *d"
    node, faults = parse(text)
    assert not faults
    assert plain(node) == {
        "a": {"x": 1, "y": 2},
        "b": {"y": 3, "x": 1},
        "c": {"x": 1, "y": 2, "z": 4},
        "d": [1],
        "e": [1],
    }


def test_bom_is_fine() -> None:
    node, faults = parse(b"\xef\xbb\xbfrun: x")
    assert not faults and plain(node) == {"run": "x"}


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: 1\na: 2\nb: 3\nb: 4", "job.yaml:2:1", "'a' is written twice; the first is at 1:1"),
        ("a:\n\tb: 1", "job.yaml:2:1", "found a tab in the indentation"),
        ("a:\n  b: 1\n \tc: 2", "job.yaml:3:2", "found a tab"),
        ("a: &a [*a]", "job.yaml:1:8", "the very thing it is part of"),
        ("a: *b", "job.yaml:1:4", "refers to no anchor above it"),
        ("a: b: c", "job.yaml:1:5", "mapping values are not allowed"),
        ("a: !include x", "job.yaml:1:4", "found the tag !include"),
        ("a: !!python/object:os.system x", "job.yaml:1:4", "found the tag !!python/object:os.system"),
        ("a: 1\n---\nb: 2", "job.yaml:2:1", "a second document"),
        ("a: [1, 2\nb: 3", "job.yaml:2:2", "while parsing a flow sequence begun at 1:4"),
        ('a: "x', "job.yaml:1:6", "not valid YAML"),
        ("a: @x", "job.yaml:1:4", "not valid YAML"),
        ("? [a]\n: b", "job.yaml:1:3", "as a key"),
        ("? ~\n: b", "job.yaml:1:3", "an empty key"),
        ("<<: 3", "job.yaml:1:5", "<< takes a mapping"),
        ("a: " + "[" * 100, "job.yaml:1:67", "nested deeper than 64 levels"),
        ("a: \x00", "job.yaml:1:4", "a NUL byte"),
        ("a: 1\nb: \x07", "job.yaml:2:4", "the control character U+0007"),
        (b"a: 1\nb: \xff", "job.yaml:2:4", "byte 8 (0xff) is not UTF-8"),
        (b"\xef\xbb\xbfa: \xff", "job.yaml:1:4", "byte 6 (0xff) is not UTF-8"),
        (b"\xff\xfea\x00", "job.yaml:1:1", "UTF-16"),
        (b"a: " + b"x" * (1 << 20), "job.yaml", "more than 1048576"),
    ],
)
def test_refused(text: str | bytes, place: str, says: str) -> None:
    _, faults = parse(text)
    assert faults, "no problem was found"
    assert faults[0].startswith(place + ": ")
    assert says in faults[0]


def test_all_duplicates_are_reported_and_the_first_value_counts() -> None:
    node, faults = parse("a: 1\na: 2\nb: 3\nb: 4\n")
    assert len(faults) == 2
    assert plain(node) == {"a": 1, "b": 3}


def test_aliases_that_grow_are_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    _, faults = parse("\n".join(lines))
    assert "more than 100000 values" in faults[0]


def test_aliases_that_deepen_are_bounded() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100)]
    _, faults = parse("\n".join(lines))
    assert "nested deeper than 64 levels" in faults[0]


@pytest.mark.parametrize("text", ["[" * 500_000, "- " * 300_000, "{a: " * 200_000, "? " * 300_000, "a: &x " * 1000])
def test_deep_nesting_never_crashes(text: str) -> None:
    _, faults = parse(text)
    assert len(faults) == 1


def test_the_pure_reader_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "CSafeLoader", yaml.SafeLoader)
    node, faults = parse("a: [1e-3, no]\nb: {c: 08}")
    assert not faults and plain(node) == {"a": [0.001, "no"], "b": {"c": 8}}
    assert "found a tab" in parse("a:\n\tb: 1")[1][0]


def test_hint_for_variables_in_flow_style() -> None:
    mistakes = Mistakes()
    yaml12.parse_text("env: {A: ${B}}", file="j", mistakes=mistakes)
    assert "must be quoted" in str(mistakes.problems[0].hint)
