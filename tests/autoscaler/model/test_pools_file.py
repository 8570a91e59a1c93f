"""pools.yaml: every key, and every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.autoscaler.model.pools_file import FILE, read_pools
from longboat.autoscaler.model.snapshot import AutoscalerSettings
from longboat.core.errors import JobError, NotFound
from longboat.fitting.model.nodes import Taint
from longboat.specs.fields.composites import all_fields

ISSUED = """\
pools:
- {name: a100, provider: kwok, min: 0, max: 10, price: 32.8, spot: false, boot: 5m, zones: [a, b],
   machine: {cpus: 96, memory: 1000Gi, gpus: 8, gpu_resource: nvidia.com/gpu, pods: 110, labels: {gpu: a100},
             taints: [{key: nvidia.com/gpu, effect: NoSchedule}]}}
settings: {idle: 10m, spare: 0, over_provision: 0, limits: {cpus: 2000, memory: 20Ti, gpus: 64},
           max_shrink_per_loop: 10, max_drains: 1}
"""


def read(text: str, folder: Path) -> tuple[object, AutoscalerSettings]:
    path = folder / "pools.yaml"
    path.write_text(text)
    return read_pools(path)


def test_all_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(ISSUED)
    (pool,), settings = read_pools(path)
    assert (pool.name, pool.provider, pool.min, pool.max, pool.price, pool.boot_s) == ("a100", "kwok", 0, 10, 32.8, 300)
    assert pool.zones == ("a", "b")
    machine = pool.machine
    assert (machine.has("cpu"), machine.has("memory"), machine.has("nvidia.com/gpu")) == (96_000, 1000 << 30, 8)
    assert machine.labels["gpu"] == "a100" and machine.labels["longboat.dev/pool"] == "a100"
    assert machine.taints == (Taint(key="nvidia.com/gpu", effect="NoSchedule"),)
    assert (settings.idle_s, settings.limits.cpus, settings.limits.memory, settings.limits.gpus) == (
        600,
        2_000_000,
        20 << 40,
        64,
    )


def test_defaults(tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text("pools: [{name: c, max: 1, machine: {cpus: 500m, memory: 1G}}]")
    (pool,), settings = read_pools(path)
    assert settings == AutoscalerSettings()
    assert pool.machine.has("cpu") == 500 and pool.machine.has("memory") == 10**9 and pool.machine.has("pods") == 110
    assert not pool.spot and pool.priority == 0 and not pool.zero_or_max and pool.growth_s == 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pools:\n- {name: a, max: 1, pric: 3, machine: M}", ':2:21: pools.0.pric: unknown field; did you mean'),
        ("pools: []\nsettings: {idel: 5m}", ':2:12: settings.idel: unknown field; did you mean "idle"'),
        ("pool: []", 'unknown field; did you mean "pools"'),
        ("settings: {}", '"pools" is missing'),
        ("pools: [{name: a, max: 1}]", '"machine" is missing'),
        ("pools: [{max: 1, machine: M}]", '"name" is missing'),
        ("pools: [{name: a, machine: M}]", '"max" is missing'),
        ("pools: [{name: A_b, max: 1, machine: M}]", "lower-case letters"),
        ("pools: [{name: a, max: 1, min: 2, machine: M}]", "min is 2, more than max"),
        ("pools: [{name: a, max: -1, machine: M}]", "a whole number from 0"),
        ("pools: [{name: a, max: 1, price: dear, machine: M}]", "a number from 0"),
        ("pools: [{name: a, max: 1, boot: soon, machine: M}]", "a duration such as"),
        ("pools: [{name: a, max: 1, machine: {cpus: 1, memory: much}}]", "a size such as"),
        ("pools: [{name: a, max: 1, machine: {cpus: lots, memory: 1Gi}}]", "a number of CPUs"),
        ("pools: [{name: a, max: 1, zones: [x, x], machine: M}]", "a zone is named twice"),
        ("pools: [{name: a, max: 2, min: 1, zero_or_max: true, machine: M}]", "min must be 0 or max"),
        ("pools: [{name: a, max: 2, growth: 1h, zero_or_max: true, machine: M}]", "leave growth out"),
        ("pools: [{name: a, max: 2, growth: true, machine: M}]", "a duration such as"),
        ("pools: [{name: a, max: 1, spot: yes, machine: M}]", "true or false"),
        ("pools: [{name: a, max: 1, machine: {cpus: 1, memory: 1, taints: [{key: x, effect: No}]}}]", "one of NoSche"),
        ("pools: [{name: a, max: 1, machine: M}, {name: a, max: 1, machine: M}]", 'two pools have the name "a"'),
        ("pools: [{name: a, max: 1, machine: {cpus: 1, memory: 1, labels: {x: a b}}}]", 'found the text "a b"'),
        ("pools: [{name: a, max: 1, machine: M}]\nsettings: {utilization: 2}", "a number from 0 to 1"),
        ("pools: [{", "not valid YAML"),
        ("", "the file is empty"),
        ("- a", "expected a mapping"),
        ("pools: {a: 1}", "a list of pools"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(JobError) as raised:
        read(text.replace("M}", "{cpus: 1, memory: 1Gi}}"), tmp_path)
    assert words in str(raised.value), str(raised.value)
    assert "pools.yaml" in str(raised.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(JobError) as raised:
        read("pools: [{name: a, max: x, machine: {cpus: y, memory: z}}]", tmp_path)
    assert len(raised.value.problems) == 3


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_pools(tmp_path / "none.yaml")


def test_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobError):
        read_pools(tmp_path)


def test_every_key_is_documented() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "autoscaler.md").read_text()
    names = {name.rpartition(".")[2].removesuffix("[]") for name in all_fields(FILE)}
    assert not [name for name in sorted(names) if f"`{name}`" not in page]
