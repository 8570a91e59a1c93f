"""A board in a real pod over what a run has in a real S3 server, and nowhere else."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.errors import LongboatError
from longboat.core.jobs import Checkpoints, Job
from longboat.engines.kubernetes.manifests.volumes import run_folder
from longboat.engines.kubernetes.records import Record
from longboat.launcher.workbench.store_events import named_url
from longboat.storage.stores.registry import open_store
from longboat.storage.urls import object_url
from longboat.workbench.stores import credentials, is_passed, named_stores, stores_of
from tests.engines.kubernetes.manifest_samples import UID, job, record, role
from tests.storage.conftest import store as store
from tests.storage.realstores import ALONE, KEYS, Running
from tests.sweeps.kubernetes.memory_cluster import MemoryCluster
from tests.workbench.conftest import fetch
from tests.workbench.test_board import WRITER
from tests.workbench.test_pods import COMMAND_TIMEOUT_S, Bench, wait_for
from tests.workbench.test_pods import bench as bench
from tests.workbench.test_pods import programs as programs

SAVES = "import longboat\nwith longboat.checkpoint(7) as folder:\n" + "".join(
    f"    {line}\n" for line in WRITER.replace('"logs"', 'folder, "logs"').strip().splitlines()
)


def test_addresses_as_they_are_given() -> None:
    assert named_stores(["s3://data/logs/cnn/", "old=gs://data/x"]) == ("cnn=s3://data/logs/cnn/", "old=gs://data/x")
    for word, pair in (
        ("s3://data/a=1/lr=0.1", ("lr=0.1", "s3://data/a=1/lr=0.1")),
        ("old=az://data/d=e", ("old", "az://data/d=e")),
    ):
        assert [*map(named_url, named_stores([word]))] == [pair], "as the board's own program reads it"
    for word in ("https://h/x", "cnn", "a/b=s3://data/x", "=s3://data/x", "..=s3://data/x", "s3://u:p@data/x", ""):
        with pytest.raises(LongboatError):
            named_stores([word])


def test_variables_that_lead_to_files_of_this_machine_stay_here() -> None:
    assert is_passed("AWS_ACCESS_KEY_ID") and is_passed("AZURE_STORAGE_ACCOUNT") and not is_passed("PATH")
    for name in ("AWS_CA_BUNDLE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        assert not is_passed(name)


@pytest.mark.pods
@pytest.mark.stores
@pytest.mark.frameworks
def test_a_board_over_an_object_store(bench: Bench, programs: list[str], store: Running, tmp_path: Path) -> None:
    bench.place.environment = {**bench.place.environment, **ALONE, **KEYS}
    (bench.project / "write.py").write_text(SAVES)
    secrets = [f"--secret={name}" for name in KEYS]
    kept = ("--checkpoints", "s3://data/boards", f"--env=AWS_ENDPOINT_URL={store.url}", *secrets)
    trained = bench("run", "-q", "--id", "cnn", *kept, *programs, "write.py", "2")
    assert trained.returncode == 0, trained.stderr
    refused = bench("board", "cnn", "--no-browser", *programs)
    assert refused.returncode == 205 and "a record does not decide where credentials go" in refused.stderr
    bench.place.environment = {**bench.place.environment, "AWS_ENDPOINT_URL": store.url}
    others = f"old=s3://data/logs-{bench.place.namespace}"
    with bench.attached("board", "cnn", "--no-browser", "--logs", others, *programs) as (process, url):
        wait_for(lambda: json.loads(fetch(url + "data/runs")) == ["cnn/train"])
        (curve,) = (
            json.loads(fetch(url + f"data/plugin/scalars/scalars?run={run}&tag=loss")) for run in ["cnn%2Ftrain"]
        )
        assert [value for _, _, value in curve] == pytest.approx([2, 1, 2 / 3])
        # What comes while it is open is shown too.
        where = object_url("s3://data/boards/")
        reached = open_store(where, store.environment)
        (events,) = (each.key for each in reached.listed(where.key) if "tfevents" in each.key)
        content = reached.ask("GET", events).body
        reached.put(f"logs-{bench.place.namespace}/eval/events.out.tfevents.1.later", content)
        wait_for(lambda: json.loads(fetch(url + "data/runs")) == ["cnn/train", "old/eval"], 120.0)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=COMMAND_TIMEOUT_S)
        assert process.returncode == 0
    objects = [
        bench.place.api.call("GET", f"/api/v1/namespaces/{bench.place.namespace}/{kind}")
        for kind in ("pods", "configmaps")
    ]
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in json.dumps(objects)
    assert bench("rm", "board", "cnn").returncode == 0
    assert bench.place.traces("board", "") == []


class Caller:
    """An engine, as far as it is asked: who calls, and the cluster."""

    def __init__(self, client: Any = None, **environment: str) -> None:
        self.client, self.environment = client, environment


def test_only_what_leads_to_the_stores_that_are_read_is_given_to_the_pod(home: Path) -> None:
    caller: Any = Caller(AWS_SECRET_ACCESS_KEY="a", AZURE_CLIENT_SECRET="b", GOOGLE_CLOUD_PROJECT="c", PATH="/bin")
    assert [each.name for each in credentials(caller, ("cnn=s3://data/x",))] == ["AWS_SECRET_ACCESS_KEY"]
    assert [each.name for each in credentials(caller, ("a=gs://x/y", "lr=1=az://x/y"))] == [
        "AZURE_CLIENT_SECRET",
        "GOOGLE_CLOUD_PROJECT",
    ]


def run_of(name: str, **fields: Any) -> Record:
    job = Job(name=name, roles=(role(**fields),), ends=("worker",), checkpoints=Checkpoints(to="s3://data/all"))
    return record(job, checkpoint_store=f"s3://data/all/{run_folder(name, UID)}")


def test_what_one_run_lacks_hides_no_other(home: Path) -> None:
    """Whoever may write a record would else decide that nobody sees any curves."""
    client: Any = MemoryCluster()
    odd = record(job(name="odd"), checkpoint_store="s3://elsewhere/x", checkpoint_dir="/etc")
    for made in (run_of("cnn"), run_of("theirs", env={"AWS_ENDPOINT_URL": "http://s3.example.org"}), odd):
        labels = {"app.kubernetes.io/managed-by": "longboat", "longboat.dev/kind": "run", "longboat.dev/run": made.name}
        meta = {"name": made.name, "namespace": "default", "labels": labels}
        data = {"record": msgspec.json.encode(made).decode(), "state": "{}"}
        client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    caller: Any = Caller(client)
    notices: list[str] = []
    pairs = stores_of(caller, ("cnn", "theirs", "odd"), notices.append)
    assert pairs == stores_of(caller, ("cnn",), notices.append) == (f"cnn=s3://data/all/{run_folder('cnn', UID)}",)
    assert len(notices) == 2 and "a record does not decide where credentials go" in notices[0] + notices[1]
    with pytest.raises(LongboatError, match="where credentials go"):
        stores_of(caller, ("theirs",), notices.append)
