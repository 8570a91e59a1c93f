"""Signed URLs are secrets: none is printed, or stands in an object that is no Secret, or in a file that others read."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.cli.output.plan_text import show_manifests, show_plan
from longboat.core.errors import JobError, LongboatError
from longboat.core.jobs import Checkpoints, DataImport, Job, Role
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.manifests.gang_file import decode
from longboat.engines.kubernetes.manifests.objects import record_object
from longboat.engines.kubernetes.records import State
from longboat.engines.local.engine import LocalEngine
from longboat.engines.shared.secret_urls import redacted_job, secret_urls
from longboat.specs.read import read_job
from longboat.storage.urls import is_secret, redacted
from tests.engines.kubernetes.wire import Wire, listening
from tests.storage.servers import serving

CANARY = "c4n4ry"
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
WORDS = st.text(alphabet="abcXYZ09-._~%=", min_size=1, max_size=6).map(lambda text: f"{CANARY}{text}")
PLAIN = st.sampled_from(["https://h.example/a/b.tar.gz", "http://h:81/x", "https://[::1]:9/y", "file:///f/x.zip"])


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Some plain, some with a user, a password, a query, a fragment, which are secret."""
    url = draw(PLAIN)
    scheme, _, rest = url.partition("://")
    if draw(st.booleans()) and scheme != "file":
        user = draw(WORDS) + draw(st.sampled_from(["", f":{CANARY}"]))
        rest = f"{user}@{rest}"
    if draw(st.booleans()):
        rest += f"?X-Amz-Signature={draw(WORDS)}&b=?{draw(WORDS)}"
    if draw(st.booleans()):
        rest += f"#{draw(WORDS)}"
    return f"{scheme}://{rest}"


def job_of(found: list[str], **fields: Any) -> Job:
    data = tuple(DataImport(url=url, to=f"d{place}") for place, url in enumerate(found))
    return Job(
        name="job", roles=(Role(name="worker", run="true"),), ends=("worker",), workdir=None, data=data, **fields
    )


@given(urls())
@CALM
def test_what_is_shown_of_a_url_holds_no_secret_and_says_where_it_leads(url: str) -> None:
    shown = redacted(url)
    assert CANARY not in shown and redacted(shown) == shown
    assert is_secret(url) or url.partition("#")[0] == shown


@pytest.mark.parametrize("url", [f"http://[x?{CANARY}", f"http://a]b/?{CANARY}", f"x?{CANARY}", f"s3://b?{CANARY}"])
def test_what_is_no_url_shows_nothing_either(url: str) -> None:
    assert CANARY not in redacted(url)


@given(st.lists(urls(), max_size=4))
@CALM
def test_a_job_without_its_secrets(found: list[str]) -> None:
    job = job_of(found)
    assert CANARY not in repr(redacted_job(job))
    kept = secret_urls(job)
    whole = [kept.get(f"LONGBOAT_DATA_URL_{place}", item.url) for place, item in enumerate(redacted_job(job).data)]
    assert [url.partition("#")[0] for url in whole] == [url.partition("#")[0] for url in found]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[KubernetesEngine, Wire, list[str]]]:
    """An engine whose API server takes down what it is sent."""
    said: list[str] = []
    (tmp_path / "home").mkdir()
    with listening(tmp_path) as (client, wire):
        wire.allows_all = True
        wire.there["namespaces"] = [{"metadata": {"name": "default"}}]
        taken = {"cpu": "64", "memory": "64Gi", "pods": "100", "ephemeral-storage": "100Gi"}
        ready = {"allocatable": taken, "capacity": taken, "conditions": [{"type": "Ready", "status": "True"}]}
        wire.there["nodes"] = [{"metadata": {"name": "n", "labels": {}}, "spec": {}, "status": ready}]
        wire.there["serviceaccounts"] = [{"metadata": {"name": "default", "namespace": "default"}}]
        environment = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "LONGBOAT_HOME": str(tmp_path / "home")}
        (tmp_path / "home" / "config.yaml").write_text(json.dumps({"kubernetes": {"image": "image"}}))
        engine = KubernetesEngine(environment={**environment, "PATH": os.environ["PATH"]}, on_notice=said.append)
        yield engine, wire, said
        engine.close()


def objects_of(engine: KubernetesEngine, submission: Submission) -> list[Any]:
    """All that a submission would create, the record first."""
    submitter, offer = engine.prepared(submission)
    upload = submitter.plan_upload(offer)
    record = submitter.record_of(offer, "job", upload)
    return [record_object(record, State()), *submitter.objects_of(offer, record, upload)]


def whole(body: Any) -> str:
    """Everything in an object, also what is packed."""
    text = json.dumps(body)
    for value in (body.get("data") or {}).values() if isinstance(body, dict) and body.get("kind") == "Secret" else ():
        data = base64.b64decode(value)
        text += repr(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return text


@given(found=st.lists(urls().filter(lambda url: "file:" not in url), min_size=1, max_size=3))
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_only_the_runs_own_secret_holds_credentials_of_urls(
    cluster: tuple[KubernetesEngine, Wire, list[str]], found: list[str]
) -> None:
    engine, wire, said = cluster
    del wire.written[:], said[:]
    submission = Submission(job=job_of(found), base="/")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        plan = engine.plan(submission)
        for output in ("table", "wide", "json", "yaml"):
            show_plan(plan, (), output)
        show_manifests(engine, submission, ())
    objects, notices = engine.manifests(submission)
    assert CANARY not in shown.getvalue() + repr(said) + repr(notices) + repr(wire.written)
    assert all(CANARY not in whole(body) for body in objects)
    made = objects_of(engine, submission)
    holding = {(body["kind"], body["metadata"]["name"]) for body in made if CANARY in whole(body)}
    is_any = any(is_secret(url) and CANARY in url.partition("#")[0] for url in found)
    assert holding == ({("Secret", "job-env")} if is_any else set())
    if is_any:
        assert any("job-env" in text and "LONGBOAT_DATA_URL_" in text for text in notices)


def test_a_pod_finds_the_whole_url_in_its_environment(cluster: tuple[KubernetesEngine, Wire, list[str]]) -> None:
    url = f"https://h/x?sig={CANARY}"
    made = objects_of(cluster[0], Submission(job=job_of(["https://h/plain", url]), base="/"))
    (secret,) = (each for each in made if each["metadata"]["name"] == "job-env")
    assert base64.b64decode(secret["data"]["LONGBOAT_DATA_URL_1"]).decode() == url
    (attempt,) = (each for each in made if each["kind"] == "Secret" and "gang" in each["data"])
    gang = decode(base64.b64decode(attempt["data"]["gang"]))
    assert [(each["url"], each.get("variable")) for each in gang["data"]] == [
        ("https://h/plain", None),
        ("https://h/x", "LONGBOAT_DATA_URL_1"),
    ]
    assert '"LONGBOAT_DATA_URL_1", "valueFrom": {"secretKeyRef"' in json.dumps(made)


def test_only_private_files_hold_credentials_of_urls(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        _run_here(tmp_path)
    finally:
        os.umask(old)


def _run_here(tmp_path: Path) -> None:
    said: list[str] = []
    engine = LocalEngine(tmp_path / "home", on_notice=said.append)
    with serving() as site:
        site.files["/x.txt"] = b"content"
        good, bad = f"{site.url}/x.txt?sig={CANARY}", f"{site.url}/gone?sig={CANARY}"
        shown = io.StringIO()
        for url, phase in ((good, "succeeded"), (bad, "failed")):
            submission = Submission(job=job_of([url]), base=str(tmp_path))
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                for output in ("table", "wide", "json", "yaml"):
                    show_plan(engine.plan(submission), (), output)
            run = engine.submit(submission).name
            status = engine.wait(run)
            assert status.phase == phase, status.reason
            told = repr(status) + repr(engine.explain(run)) + repr(engine.list()) + shown.getvalue() + repr(said)
            assert CANARY not in told
        assert all(f"?sig={CANARY}" in path for path, _ in site.requests)
    holding = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and CANARY in _text(path)]
    assert {path.name for path in holding} <= {"record.json"}
    for path in holding:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


@pytest.mark.parametrize(
    "url",
    [f"ftp://h/x?{CANARY}", f"https:///x?{CANARY}", f"s3://b/x?{CANARY}", f"s3://k:{CANARY}@b/x", f"gs://?{CANARY}"],
)
def test_a_refusal_shows_none(tmp_path: Path, url: str) -> None:
    with pytest.raises(LongboatError) as caught:
        LocalEngine(tmp_path / "home").submit(Submission(job=job_of([url]), base=str(tmp_path)))
    assert CANARY not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("place", [f"https://h/x?sig={CANARY}", f"ftp://u:{CANARY}@h", f"s3://b/x?{CANARY}"])
def test_a_refused_resume_url_shows_no_credentials(
    tmp_path: Path, cluster: tuple[KubernetesEngine, Wire, list[str]], place: str
) -> None:
    submission = Submission(job=job_of([], checkpoints=Checkpoints(resume=place)), base=str(tmp_path))
    for engine in (LocalEngine(tmp_path / "home"), cluster[0]):
        with pytest.raises(LongboatError) as caught:
            engine.submit(submission)
        assert CANARY not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("url", [f"ftp://h/x?{CANARY}", f"https://h/x y?{CANARY}", f"https://h/a#b{CANARY}"])
def test_a_mistake_in_a_job_file_shows_none(url: str) -> None:
    with pytest.raises(JobError) as caught:
        read_job((), fields={"run": "true", "data": [{"url": url, "to": "d"}], "nodes": url}, environment={})
    assert CANARY not in str(caught.value)
