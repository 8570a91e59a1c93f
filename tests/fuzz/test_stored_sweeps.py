"""Sweeps and services as they are stored, spoiled: read, or an error in words; `sweep ls` and `serve ls` go on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.errors import LongboatError
from longboat.engines.shared.home import Home
from longboat.serving.kubernetes.status import record_of
from longboat.serving.local.records import ServiceFolder
from longboat.sweeps.kubernetes.store import read_sweep
from longboat.sweeps.record import SweepFolder
from longboat.sweeps.report import report_of
from tests.fuzz.mutations import as_json, examples, spoiled, strange

STORED = Path(__file__).resolve().parents[1] / "formats" / "1"


def stored(name: str) -> Any:
    return json.loads((STORED / name).read_text())


CONFIG_MAP = stored("sweep/configmap.json")
DEPLOYMENT = stored("service/deployment.json")
SWEEP = json.loads(CONFIG_MAP["data"]["sweep"])
(RECORD,) = DEPLOYMENT["metadata"]["annotations"]


@examples(0.02)
@given(sweep=strange([SWEEP]), state=spoiled([CONFIG_MAP["binaryData"]["state"].encode()]))
def test_sweeps_of_a_cluster(sweep: Any, state: bytes) -> None:
    changed = {**CONFIG_MAP, "data": {**CONFIG_MAP["data"], "sweep": json.dumps(sweep)}}
    packed = {**CONFIG_MAP, "binaryData": {"state": state.decode("latin-1")}}
    for each in (changed, packed):
        with contextlib.suppress(LongboatError):
            kept = read_sweep(each)
            report_of(kept.record, kept.state)


@examples(0.01)
@given(record=strange([json.loads(DEPLOYMENT["metadata"]["annotations"][RECORD])]))
def test_services_of_a_cluster(record: Any) -> None:
    with contextlib.suppress(LongboatError):
        record_of({"metadata": {"name": "svc", "annotations": {RECORD: json.dumps(record)}}})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    root = tmp_path_factory.mktemp("home")
    for kind, name in (("sweeps", "digits"), ("services", "app")):
        (root / kind / name).mkdir(parents=True)
    yield Home(root)


FILES = ("sweep/record.json", "sweep/state.json", "service/service.json", "service/state.json")


@examples(0.02)
@given(data=st.data(), name=st.sampled_from(FILES))
def test_sweeps_and_services_of_this_machine(home: Home, data: st.DataObject, name: str) -> None:
    kind, _, file = name.partition("/")
    kept = (STORED / name).read_bytes()
    changed = data.draw(spoiled([kept]) | strange([json.loads(kept)]).map(as_json))
    sweep, service = SweepFolder(home, "digits"), ServiceFolder(home, "app")
    for other in FILES:
        place = sweep.directory if other.startswith("sweep") else service.directory
        (place / other.partition("/")[2]).write_bytes((STORED / other).read_bytes())
    (sweep.directory if kind == "sweep" else service.directory).joinpath(file).write_bytes(changed)
    with contextlib.suppress(LongboatError):
        report_of(sweep.record(), sweep.state())
    for read in (service.wanted, service.state):
        with contextlib.suppress(LongboatError):
            read()
