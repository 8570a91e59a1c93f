"""Files of every format that was ever written, read by the present code; and what a newer Longboat writes is refused.

`0` was written before records carried a format, `1` by the first that does: a run of two nodes whose first attempt
failed, on the embedded engine (`run/`) and on Kubernetes (the rest). `2` is that of runs in a cluster that have spare
nodes. A folder is added with every new format, none is ever changed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.core.guards.formats import FORMAT, PLAIN, SPARES, NewerFormat
from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.observe.termination import read_termination
from longboat.engines.kubernetes.record_store import NewerRecord, read_record
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.runfiles import RunFiles
from longboat.launcher.node.plan import NodePlan
from longboat.launcher.pod.gang_file import plan_of
from longboat.serving.kubernetes.manifests import RECORD
from longboat.serving.kubernetes.status import record_of
from longboat.serving.local.records import ServiceFolder
from longboat.storage.checkpoints import newest_complete
from longboat.storage.inventory.actions import verify
from longboat.storage.inventory.folder_place import FolderPlace
from longboat.sweeps.kubernetes.store import BadSweep, read_sweep
from longboat.sweeps.record import SweepFolder
from tests.engines.local.conftest import LocalJobs

HERE = Path(__file__).parent
FORMATS = sorted(path.name for path in HERE.iterdir() if path.name.isdigit())
NEWER = FORMAT + 1


def having(name: str) -> list[str]:
    """Formats of which there is such a file: sweeps and services came after the first, some are of one kind of run."""
    return [number for number in FORMATS if (HERE / number / name).exists()]


def stored(number: str, name: str) -> Any:
    return json.loads((HERE / number / name).read_text())


@pytest.fixture
def homes(tmp_path: Path) -> LocalEngine:
    return LocalEngine(tmp_path / "home", environment={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})


def put(engine: LocalEngine, number: str, name: str = "digits") -> RunFiles:
    """A run that another version has left in this home."""
    shutil.copytree(HERE / number / "run", engine.home.runs / name)
    return RunFiles(engine.home.runs / name)


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_present_format_has_its_files() -> None:
    assert [str(number) for number in range(FORMAT + 1)] == FORMATS


@pytest.mark.parametrize("number", having("run"))
def test_a_run_of_this_machine(homes: LocalEngine, number: str) -> None:
    put(homes, number)
    status = homes.status("digits")
    assert (status.phase, status.exit_code, status.step, status.metrics) == ("succeeded", 0, 6, {"loss": 1 / 6})
    first, second = status.attempts
    assert first.failure is not None and first.failure.rank is not None
    assert (first.failure.cause, first.failure.rank.rank) == ("exception", 0)
    assert first.failure.message == "ValueError: the loss is NaN"
    assert second.failure is None and (second.resumed_from or "").endswith("/step-2")
    lines = [line.data.decode() for line in homes.logs("digits", LogQuery()) if line.rank == 1]
    assert lines == [f"step {step}\n" for step in (1, 2, 3, 3, 4, 5, 6)]
    assert homes.explain("digits").headline
    assert [run.name for run in homes.list()] == ["digits"]
    role = RunFiles(homes.home.runs / "digits").record().job.roles[0]
    assert (role.run, role.nodes, role.env) == ("python train.py", 2, {"LR": "1e-3"})


@pytest.mark.parametrize("number", having("run"))
def test_plans_of_launchers(number: str) -> None:
    for path in sorted((HERE / number / "run" / "attempts").glob("*/*/plan.json")):
        plan = NodePlan(json.loads(path.read_text()))
        assert (plan.run, plan.node, plan.command) == ("digits", path.parent.name, "python train.py")
        assert plan.attempt == int(path.parts[-3])


@pytest.mark.parametrize("number", FORMATS)
def test_a_run_of_a_cluster(number: str) -> None:
    record, state = read_record(stored(number, "configmap.json"))
    assert (record.name, record.job.retries.count, record.workload) == ("digits", 1, "job")
    assert (state.phase, state.exit_code, state.cause, state.attempt) == ("failed", 1, "exception", 1)
    assert [attempt.failure is not None for attempt in state.attempts] == [True, True]


@pytest.mark.parametrize("number", FORMATS)
def test_gang_files_and_last_words_of_pods(number: str) -> None:
    plan = plan_of(stored(number, "gang.json"), "worker", 1, "/longboat", [])
    assert (plan["run"], plan["role"], plan["index"]) == ("digits", "worker", 1)
    assert [rank["rank"] for rank in plan["ranks"]] == [1]
    for pod, text in stored(number, "terminations.json").items():
        end = read_termination(text)
        assert end is not None and end.exit_code == (1 if pod.endswith("-0") else 143), pod


@pytest.mark.parametrize("number", having("sweep"))
def test_a_sweep_of_this_machine_and_of_a_cluster(homes: LocalEngine, number: str) -> None:
    shutil.copytree(HERE / number / "sweep", homes.home.root / "sweeps" / "digits")
    folder = SweepFolder(homes.home, "digits")
    record, state = folder.record(), folder.state()
    assert record.job.sweep is not None and dict(record.job.sweep.space) == {"lr": (1, 2)}
    assert (state.phase, [trial.metrics["loss"] < 1 for trial in state.trials]) == ("succeeded", [True, True])
    kept = read_sweep(stored(number, "sweep/configmap.json"))
    assert (kept.record.name, len(kept.state.trials), kept.base.name) == ("s", 2, "s-t1")


@pytest.mark.parametrize("number", having("service"))
def test_a_service_of_this_machine_and_of_a_cluster(homes: LocalEngine, number: str) -> None:
    shutil.copytree(HERE / number / "service", homes.home.root / "services" / "app")
    folder = ServiceFolder(homes.home, "app")
    wanted, state = folder.wanted(), folder.state()
    assert wanted is not None and (wanted.port, wanted.versions[0].run, wanted.versions[0].step) == (39831, "one", 3)
    assert [(replica.name, replica.phase) for replica in state.replicas] == [("app-r1", "ready")]
    assert record_of(stored(number, "service/deployment.json")).step == 7


@pytest.mark.parametrize("number", having("checkpoints"))
def test_checkpoints(number: str) -> None:
    """The marker says what is in the folder, and the folder has it."""
    folder = HERE / number / "checkpoints"
    assert newest_complete(folder) == folder / "step-3"
    (check,) = verify(FolderPlace(folder), "one", "")
    assert (check.step, check.files) == (3, 1) and not check.problems


def test_what_an_older_one_would_do_harm_with_has_a_format_of_its_own() -> None:
    """It takes a spare for a member too many, and ends a gang that goes on without a lost one."""
    record, _ = read_record(stored("2", "configmap.json"))
    assert (record.format, record.job.roles[0].spares) == (SPARES, 1)
    plan = plan_of(stored("2", "gang.json"), "worker", 2, "/longboat", [])
    assert (plan["spares"], plan["ranks"], plan["peers"][0]["node"]) == (["worker-2"], [], "worker-0")


def test_a_new_run_carries_the_format(local: LocalJobs) -> None:
    run = local.run("print(1)")
    for name in ("record.json", "state.json"):
        assert json.loads((local.files(run.name).directory / name).read_text())["format"] == PLAIN


@pytest.mark.parametrize("file", ["record.json", "state.json", "progress.json"])
@pytest.mark.parametrize("fields", [{}, {"phase": "hibernating", "uid": 7, "attempts": "many"}], ids=["alike", "odd"])
def test_a_run_of_a_newer_longboat_is_refused_and_left_as_it_is(
    homes: LocalEngine, file: str, fields: dict[str, object]
) -> None:
    """As if its supervisor had vanished: nobody else takes it over, and others are listed as ever."""
    put(homes, having("run")[-1], "other")
    change(homes.home.runs / "other" / "record.json", name="other")
    files = put(homes, having("run")[-1])
    change(files.directory / "state.json", phase="running", ended=None, exit_code=None)
    change(files.directory / file, format=NEWER, **fields)
    (files.directory / "supervisor.lock").touch()
    before = {path: path.read_bytes() for path in files.directory.rglob("*") if path.is_file()}
    for act in (homes.status, homes.explain, homes.resubmission, homes.delete):
        with pytest.raises(NewerFormat, match="run digits was written by a newer Longboat") as refused:
            act("digits")
        assert refused.value.hint is not None and "upgrade" in refused.value.hint
    told: list[str] = []
    engine = LocalEngine(homes.home.root, environment=homes.environment, on_notice=told.append)
    assert [run.name for run in engine.list()] == ["other"] and len(told) == 1
    assert {path: path.read_bytes() for path in files.directory.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("part", ["record", "state"])
@pytest.mark.parametrize("fields", [{}, {"phase": "hibernating", "job": 7}], ids=["alike", "odd"])
def test_a_record_of_a_newer_longboat_in_a_cluster(part: str, fields: dict[str, object]) -> None:
    body = stored(FORMATS[-1], "configmap.json")
    body["data"][part] = json.dumps({**json.loads(body["data"][part]), "format": NEWER, **fields})
    with pytest.raises(NewerRecord, match="the record of run digits was written by a newer Longboat"):
        read_record(body)


def test_sweeps_and_services_of_a_newer_longboat(homes: LocalEngine) -> None:
    newer = json.dumps({"format": NEWER, "name": "lr"})
    sweep, service = SweepFolder(homes.home, "lr"), ServiceFolder(homes.home, "app")
    for folder, name in ((sweep.directory, "record.json"), (sweep.directory, "state.json")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(newer)
    service.directory.mkdir(parents=True)
    service.wanted_file.write_text(newer)
    for read in (sweep.record, sweep.state, service.wanted):
        with pytest.raises(NewerFormat, match="newer Longboat"):
            read()
    body = {"metadata": {"name": "lr.sweep", "namespace": "default"}, "data": {"sweep": newer, "run": "{}"}}
    with pytest.raises(BadSweep, match="newer Longboat"):
        read_sweep(body)
    with pytest.raises(NewerFormat, match="the service app"):
        record_of({"metadata": {"name": "app", "annotations": {RECORD: newer}}})


def test_what_is_damaged_is_not_called_newer() -> None:
    body = stored(FORMATS[-1], "configmap.json")
    body["data"]["state"] = '{"format": "new"}'
    with pytest.raises(EngineError, match="is damaged"):
        read_record(body)
