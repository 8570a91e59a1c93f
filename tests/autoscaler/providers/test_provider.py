"""What `provider.Provider` promises, on every provider; and what is special about each."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from longboat.autoscaler.model.provider_settings import ExecSettings
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.exec import ExecProvider
from longboat.autoscaler.providers.kwok import KwokProvider, SimulatedFault
from longboat.autoscaler.providers.provider import KINDS, Instance, MachineRequest, Provider, ProviderError
from longboat.autoscaler.providers.registry import differences
from longboat.kubeapi.kinds import NODE
from tests.autoscaler.stages import Stage, pool
from tests.clouds.aws.moto_cluster import MotoCluster
from tests.clouds.azure.simulated_azure import SimulatedAzure
from tests.clouds.gcp.simulated_google import SimulatedGoogle

CLOUD = Path(__file__).resolve().parents[1] / "cloud.py"
VERBS = ("list", "grow", "shrink", "describe")


class Side(Protocol):
    """A provider under test, opened anew as often as wanted, and a way to make it refuse."""

    pool: Pool
    other: Pool

    def open(self) -> Provider: ...

    def refuse(self, kind: str, zone: str | None) -> None: ...


class KwokSide:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.pool, self.other = stage.pool("gpu", zones=("a", "b")), stage.pool("other")

    def open(self) -> Provider:
        return KwokProvider(self.stage.client, self.stage.namespace)

    def refuse(self, kind: Any, zone: str | None) -> None:
        self.stage.fault(SimulatedFault(pool=self.pool.name, kind=kind, zone=zone))


class ExecSide:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool, self.other = pool("gpu", zones=("a", "b")), pool("other")

    def open(self) -> Provider:
        return ExecProvider("metal", settings(self.folder))

    def refuse(self, kind: str, zone: str | None) -> None:
        (self.folder / "faults").write_text(json.dumps([{"pool": self.pool.name, "kind": kind, "zone": zone}]))


class AwsSide:
    def __init__(self, moto: MotoCluster) -> None:
        self.moto, self.group = moto, moto.node_group("gpu")
        moto.node_group("other", "m5.large")
        self.pool, self.other = moto.provider().discover().pools

    def open(self) -> Provider:
        return self.moto.provider()

    def refuse(self, kind: str, zone: str | None) -> None:
        self.moto.refuse(self.group, kind, zone)


class AzureSide:
    def __init__(self, azure: SimulatedAzure) -> None:
        self.azure = azure
        self.sets = {f"westeurope-{zone}": azure.add_pool("gpu", zone=zone) for zone in "12"}
        azure.add_pool("other", "Standard_D4s_v5")
        self.pool, self.other = azure.provider().discover().pools

    def open(self) -> Provider:
        return self.azure.provider()

    def refuse(self, kind: str, zone: str | None) -> None:
        assert zone is not None
        self.sets[zone].refusal = kind, 0, False


class GoogleSide:
    def __init__(self, google: SimulatedGoogle) -> None:
        self.google = google
        self.groups = {group.zone: group for group in google.add_pool("gpu")}
        google.add_pool("other", "e2-standard-4")
        self.pool, self.other = google.provider().discover().pools

    def open(self) -> Provider:
        return self.google.provider()

    def refuse(self, kind: str, zone: str | None) -> None:
        assert zone is not None
        self.groups[zone].refusal = kind, 0


def settings(folder: Path, **more: Any) -> ExecSettings:
    commands = {verb: (sys.executable, str(CLOUD), verb) for verb in VERBS}
    return ExecSettings(**{**commands, "env": {"CLOUD": str(folder)}, **more})


@pytest.fixture(
    params=[
        pytest.param("kwok", marks=pytest.mark.cluster),
        "exec",
        pytest.param("aws", marks=pytest.mark.clouds),
        pytest.param("azure", marks=pytest.mark.clouds),
        pytest.param("gcp", marks=pytest.mark.clouds),
    ]
)
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Side:
    if request.param == "aws":
        return AwsSide(request.getfixturevalue("moto"))
    if request.param == "azure":
        return AzureSide(request.getfixturevalue("azure"))
    if request.param == "gcp":
        return GoogleSide(request.getfixturevalue("google"))
    return KwokSide(request.getfixturevalue("stage")) if request.param == "kwok" else ExecSide(tmp_path)


def first_zone(side: Side) -> str:
    return side.pool.zones[0]


def second_zone(side: Side) -> str:
    return side.pool.zones[1]


def machines(side: Side) -> tuple[Instance, ...]:
    return side.open().list([side.pool, side.other]).machines


def test_what_is_ordered_is_listed_with_its_pool_zone_and_token(side: Side) -> None:
    assert machines(side) == ()
    made = side.open().grow(side.pool, MachineRequest(token="t1", count=2, zone=second_zone(side)))
    found = machines(side)
    assert len(found) == 2 and {one.id for one in made} <= {one.id for one in found}
    assert {(one.pool, one.zone, one.token) for one in found} == {(side.pool.name, second_zone(side), "t1")}
    assert side.open().list([side.other]).machines == ()


def test_an_order_sent_twice_is_one_order(side: Side) -> None:
    for _ in range(3):
        side.open().grow(side.pool, MachineRequest(token="t1", count=2, zone=first_zone(side)))
    first = machines(side)
    side.open().grow(side.pool, MachineRequest(token="t2", count=1, zone=first_zone(side)))
    assert len(first) == 2 and len(machines(side)) == 3


def test_listing_changes_nothing(side: Side) -> None:
    side.open().grow(side.pool, MachineRequest(token="t1", count=1, zone=first_zone(side)))
    assert machines(side) == machines(side)


def test_exactly_the_named_machines_are_deleted_and_twice_is_no_error(side: Side) -> None:
    side.open().grow(side.pool, MachineRequest(token="t1", count=3, zone=first_zone(side)))
    first, *others = machines(side)
    for _ in range(2):
        side.open().shrink(side.pool, (first.id,))
    assert {one.id for one in machines(side)} == {one.id for one in others}
    side.open().shrink(side.pool, ("never-was",))


@pytest.mark.parametrize("kind", ["stockout", "quota", "auth", "throttled"])
def test_a_refusal_has_its_kind_and_leaves_nothing(side: Side, kind: str) -> None:
    side.refuse(kind, first_zone(side))
    for _ in range(2):
        with pytest.raises(ProviderError) as caught:
            side.open().grow(side.pool, MachineRequest(token="t1", count=2, zone=first_zone(side)))
        assert caught.value.kind == kind and kind in caught.value.message
    assert machines(side) == ()
    assert len(side.open().grow(side.pool, MachineRequest(token="t2", count=1, zone=second_zone(side)))) <= 1
    assert len(machines(side)) == 1


def test_an_order_that_was_taken_back_is_not_served_later(side: Side) -> None:
    side.open().shrink(side.pool, (), ("t1",))
    side.open().grow(side.pool, MachineRequest(token="t1", count=2, zone=first_zone(side)))
    assert machines(side) == ()


def test_a_pool_is_described(side: Side) -> None:
    described = side.open().describe(side.pool)
    assert described.zones == side.pool.zones and described.spot is False
    assert list(differences((side.pool,), {side.pool.provider: side.open()})) == []


# exec


def script(tmp_path: Path, text: str, **more: Any) -> ExecProvider:
    path = tmp_path / "command.py"
    path.write_text(text)
    command = (sys.executable, str(path))
    return ExecProvider("metal", ExecSettings(list=command, grow=command, shrink=command, **more))


BAD: list[tuple[str, str]] = [
    ("print('hello')", "printed what is not understood"),
    ("pass", "printed nothing"),
    ("print('{\"machines\": 3}')", "printed what is not understood"),
    ('print(\'{"machines": [{"pool": "gpu"}]}\')', "printed what is not understood"),
    ('print(\'{"machines": [{"id": "a", "pool": "elsewhere"}]}\')', "unknown pool elsewhere"),
    ('print(\'{"machines": [{"id": "a", "pool": "gpu"}, {"id": "a", "pool": "gpu"}]}\')', "same id"),
    ("import sys; print('no IPMI there', file=sys.stderr); sys.exit(3)", "exit code 3: no IPMI there"),
    ("import os; os.abort()", "signal 6"),
    ("import sys; sys.stdout.buffer.write(bytes([255, 254]))", "printed what is not understood"),
    ("import sys; sys.stdout.write('x' * (17 << 20))", "more than 16 MiB"),
    ("while True: print('x' * 4096)", "more than 16 MiB"),
    ("print('{}')", "printed what is not understood: Object missing required field `machines`"),
    ("print('null')", "printed what is not understood"),
    ("print('[]')", "printed what is not understood"),
    ("print('{\"machines\": null}')", "printed what is not understood"),
    ("print('{\"machines\": {}}')", "printed what is not understood"),
    ("print('{\"Machines\": []}')", "missing required field `machines`"),
    ('print(\'{"machines": [{"id": 7, "pool": "gpu"}]}\')', "printed what is not understood"),
    ('print(\'{"machines": [{"id": "", "pool": "gpu"}]}\')', "without id"),
    ('print(\'{"machines": [{"id": "a", "pool": "gpu", "state": "gone"}]}\')', "printed what is not understood"),
    ('print(\'{"machines": [], "refusals": [{"pool": "x", "kind": "quota"}]}\')', "refusal of an unknown pool x"),
    (
        'print(\'{"machines": [{"id": "a", "pool": "gpu", "node": "n"}, {"id": "b", "pool": "gpu", "node": "n"}]}\')',
        "same node",
    ),
    ("import json; print(json.dumps({'machines': [{'id': 'x' * 2000, 'pool': 'gpu'}]}))", "too long"),
    ("import json; print(json.dumps({'machines': [{'id': 'a' + chr(10) + 'b', 'pool': 'gpu'}]}))", "no plain text"),
    ("import json; print(json.dumps({'machines': [{'id': str(n), 'pool': 'gpu'} for n in range(50001)]}))", "50000"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_bad_output_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        script(tmp_path, text).list([pool("gpu")])
    assert words in caught.value.message and caught.value.message.startswith("provider metal: the command for list")
    assert "\n" not in caught.value.message and caught.value.kind == "other"


BAD_ORDERS: list[tuple[dict[str, Any], str]] = [
    ({}, "missing required field `machines`"),
    ({"machines": [{"id": "a", "pool": "other"}]}, "unknown pool other"),
    ({"machines": [{"id": "a", "pool": "gpu", "token": "u"}]}, "the machine a of another order"),
    ({"machines": [{"id": one, "pool": "gpu"} for one in "abc"]}, "3 machines for an order of 2"),
]


@pytest.mark.parametrize(("answer", "words"), BAD_ORDERS)
def test_an_order_is_answered_with_its_own_machines(tmp_path: Path, answer: dict[str, Any], words: str) -> None:
    provider = script(tmp_path, f"print({json.dumps(answer)!r})")
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool("gpu"), MachineRequest(token="t", count=2))
    assert words in caught.value.message
    provider = script(tmp_path, "print('{\"machines\": []}')")
    assert provider.grow(pool("gpu"), MachineRequest(token="t", count=2)) == ()


def test_a_command_that_reads_no_question_and_floods_stderr_is_bounded(tmp_path: Path) -> None:
    text = "import sys; sys.stdin.close(); sys.stderr.write('x' * (8 << 20) + '\\nlast words\\n'); sys.exit(4)"
    many = [pool(f"pool-{number}") for number in range(2000)]
    with pytest.raises(ProviderError, match="exit code 4: last words"):
        script(tmp_path, text).list(many)


@pytest.mark.parametrize("kind", [*KINDS, "no-such-kind"])
def test_every_kind_of_error_is_told_also_with_an_exit_code(tmp_path: Path, kind: str) -> None:
    told = json.dumps({"error": {"kind": kind, "message": "sold out"}})
    provider = script(tmp_path, f"import sys; print({told!r}); sys.exit(1)")
    with pytest.raises(ProviderError) as caught:
        provider.list([pool("gpu")])
    assert caught.value.kind == (kind if kind in KINDS else "other") and "sold out" in caught.value.message


def test_a_machine_that_is_not_found_is_deleted(tmp_path: Path) -> None:
    told = json.dumps({"error": {"kind": "not-found", "message": "which?"}})
    script(tmp_path, f"print({told!r})").shrink(pool("gpu"), ("a",))


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(3); open({str(mark)!r}, 'w')"
    text = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    with pytest.raises(ProviderError, match=r"did not end within 0\.5 s"):
        script(tmp_path, text, timeout_s=0.5).list([pool("gpu")])
    provider = script(tmp_path, "import time; time.sleep(4); print('{\"machines\": []}')", timeout_s=60.0)
    assert provider.list([pool("gpu")]).machines == ()
    assert not mark.exists()


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    missing = ExecSettings(list=("/no/such/program",), grow=("x",), shrink=("x",))
    with pytest.raises(ProviderError, match="cannot be started: No such file"):
        ExecProvider("metal", missing).list([pool("gpu")])


def test_words_are_no_shell_and_one_text_is(tmp_path: Path) -> None:
    words = ExecSettings(list=("echo", '{"machines": []}', "$(touch bad)"), grow=("x",), shrink=("x",))
    with pytest.raises(ProviderError, match="not understood"):
        ExecProvider("metal", msgspec.structs.replace(words, folder=str(tmp_path))).list([pool("gpu")])
    assert not (tmp_path / "bad").exists()
    text = ExecSettings(list="cat >/dev/null; echo '{\"machines\": []}'", grow=("x",), shrink=("x",))
    assert ExecProvider("metal", text).list([pool("gpu")]).machines == ()


def test_what_a_command_is_asked(tmp_path: Path) -> None:
    text = "import json, sys; asked = json.load(sys.stdin); open('asked', 'w').write(json.dumps(asked))"
    text += "; print(json.dumps({'machines': []}))"
    provider = script(tmp_path, text, folder=str(tmp_path))
    wanted = pool("gpu", zones=("a",), spot=True, machine={"labels": {"gpu": "a100"}})
    provider.grow(wanted, MachineRequest(token="t", count=2, zone="a", spot=True))
    asked = json.loads((tmp_path / "asked").read_text())
    assert (asked["verb"], asked["version"], asked["token"], asked["count"]) == ("grow", 1, "t", 2)
    assert asked["zone"] == "a" and asked["spot"] is True
    assert asked["pool"]["name"] == "gpu" and asked["pool"]["machine"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert asked["pool"]["machine"]["allocatable"]["memory"] == "256Gi"
    assert asked["pool"]["machine"]["labels"]["gpu"] == "a100"


def test_what_a_provider_describes_is_compared(tmp_path: Path) -> None:
    told = {"allocatable": {"nvidia.com/gpu": "4", "cpu": "64"}, "zones": ["b"], "spot": True, "max": 3}
    command = (sys.executable, "-c", f"print({json.dumps(told)!r})")
    provider = ExecProvider("metal", ExecSettings(list=command, grow=command, shrink=command, describe=command))
    found = "\n".join(differences((pool("gpu", zones=("a",), provider="metal"),), {"metal": provider}))
    assert "says 4 nvidia.com/gpu, the pools file 8" in found and "has no zone a" in found
    assert "spot: true" in found and "3 machines at most" in found and "cpu" not in found


# kwok


@pytest.mark.cluster
def test_an_order_of_which_some_machines_are_made_is_finished_and_refused_alike(stage: Stage) -> None:
    mine = stage.pool("gpu")
    stage.fault(SimulatedFault(pool=mine.name, kind="stockout", after=1))
    for _ in range(2):
        with pytest.raises(ProviderError):
            KwokProvider(stage.client, stage.namespace).grow(mine, MachineRequest(token="t", count=3))
        for node in stage.nodes():  # as if the first call had died before the node was there
            stage.client.delete(NODE, node["metadata"]["name"])
    with pytest.raises(ProviderError):
        KwokProvider(stage.client, stage.namespace).grow(mine, MachineRequest(token="t", count=3))
    assert len(stage.nodes()) == len(stage.machines()) == 1
    (refusal,) = KwokProvider(stage.client, stage.namespace).list([mine]).refusals
    assert (refusal.token, refusal.kind) == ("t", "stockout")


# the documentation

DOCS = Path(__file__).resolve().parents[3] / "docs" / "autoscaler.md"


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    text = next(block for block in DOCS.read_text().split("```python\n")[1:] if "wakeonlan" in block)
    command = tmp_path / "machines.py"
    command.write_text(text.partition("```")[0])
    command.chmod(0o755)
    for name in ("wakeonlan", "ssh"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/log"\n')
        (tmp_path / name).chmod(0o755)
    inventory = [{"name": f"gpu-{number}", "mac": f"m{number}", "pool": "gpu"} for number in range(3)]
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "INVENTORY": str(tmp_path / "inventory.json")}
    commands = {verb: (str(command), verb) for verb in VERBS}
    provider = ExecProvider("metal", ExecSettings(**commands, env=variables, folder=str(tmp_path)))  # type: ignore[arg-type]
    mine = pool("gpu")
    for _ in range(2):
        assert len(provider.grow(mine, MachineRequest(token="t", count=2))) == 2
    first, second = provider.list([mine]).machines
    with pytest.raises(ProviderError, match="only 1 machines are left") as caught:
        provider.grow(mine, MachineRequest(token="u", count=2))
    assert caught.value.kind == "stockout"
    for _ in range(2):
        provider.shrink(mine, (first.id,))
    assert provider.list([mine]).machines == (second,)
    provider.describe(mine)
    log = (tmp_path / "log").read_text().splitlines()
    assert log == ["wakeonlan m0", "wakeonlan m1"] * 2 + ["ssh gpu-0 sudo poweroff"]
