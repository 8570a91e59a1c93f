from __future__ import annotations

import re
from pathlib import Path

import pytest

from longboat.core.errors import EngineError, JobError, UsageError
from longboat.engines.kubernetes.records import CodeStore, GpuDriver, Storage
from longboat.engines.kubernetes.settings import ClusterSettings, images_of, read_settings, write_setting
from tests.engines.kubernetes.manifest_samples import job, role

ALL = """\
# what I use
engine: kubernetes
kubernetes:
  context: lab
  namespace: vision
  image: python:3.13
  images: {torch: "registry.example.org/torch:2.9"}
  storage: {claim: training}
  queue: research
  priority_class: high
  topology: {preferred: cloud.provider.com/topology-rack}
  allow_host_paths: true
  gate_s: 10m
  pull_secrets: [registry]
  service_account: trainer
contexts:
  "arn:aws:eks:eu-central-1:1:cluster/lab": {storage: {nfs: "nas:/export"}, images: {jax: "jax:1"}}
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"LONGBOAT_HOME": str(tmp_path)}


def write(home: dict[str, str], text: str) -> None:
    Path(home["LONGBOAT_HOME"], "config.yaml").write_text(text)


def test_without_a_file_everything_has_its_default(home: dict[str, str]) -> None:
    settings = read_settings(home)
    assert settings.engine == "local"
    assert settings.cluster("any") == ClusterSettings()
    write(home, "# nothing yet\n")
    assert read_settings(home) == settings


def test_every_setting_is_read_and_a_context_comes_over_the_rest(home: dict[str, str]) -> None:
    write(home, ALL)
    settings = read_settings(home)
    assert settings.engine == "kubernetes"
    assert settings.cluster() == ClusterSettings(
        context="lab",
        namespace="vision",
        image="python:3.13",
        images={"torch": "registry.example.org/torch:2.9"},
        storage=Storage(claim="training"),
        queue="research",
        priority_class="high",
        topology={"preferred": "cloud.provider.com/topology-rack"},
        allow_host_paths=True,
        gate_s=600.0,
        pull_secrets=("registry",),
        service_account="trainer",
    )
    own = settings.cluster("arn:aws:eks:eu-central-1:1:cluster/lab")
    assert own.storage == Storage(nfs="nas:/export")
    assert own.images == {"torch": "registry.example.org/torch:2.9", "jax": "jax:1"}
    assert own.namespace == "vision"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("engine: slurm", "1:9", "expected one of local, kubernetes"),
        ("kubernetes:\n  storge: {claim: x}", "2:3", 'did you mean "storage"'),
        ("kubernetes:\n  storage: {claim: x, nfs: 'a:/b'}", "2:12", "found claim and nfs, expected exactly one"),
        ("kubernetes: {storage: {secret: x}}", "1:23", "found secret, expected exactly one"),
        ("kubernetes: {storage: {claim: x, secret: x}}", "1:23", "no url"),
        ("kubernetes: {storage: {url: 'https://x/y'}}", "1:29", "s3://"),
        ("kubernetes: {storage: {url: 's3://id:canary@bucket'}}", "1:29", "credentials"),
        ("kubernetes: {storage: {path: relative}}", "1:30", "expected an absolute path"),
        ("kubernetes: {storage: {path: /a/../b}}", "1:30", "expected an absolute path"),
        ("kubernetes: {topology: {required: a, preferred: b}}", "1:24", "expected one of them"),
        ("kubernetes: {images: {pytorch: x}}", "1:23", "expected a framework"),
        ("kubernetes: {allow_host_paths: yes}", "1:32", "expected true or false"),
        ("kubernetes: {gpu: {mode: hostpath}}", "1:19", "found mode hostpath and no driver, expected its folder"),
        ("kubernetes: {gpu: {driver: /usr/lib/nvidia-384}}", "1:19", "found driver, which is for `mode: hostpath`"),
        ("kubernetes: {gpu: {mode: hostpath, driver: lib}}", "1:44", "expected an absolute path"),
        ("kubernetes: {gate_s: 1}", "1:22", "a duration"),
        ("contexts: {a: {context: b}}", "1:16", "unknown field"),
        ("engine: local\nengine: local", "2:1", "written twice"),
        ("- a", "1:1", "expected a mapping"),
        ("engine: [", "2:1", "not valid YAML"),
    ],
)
def test_mistakes_are_told_with_their_place(home: dict[str, str], text: str, place: str, words: str) -> None:
    write(home, text + "\n")
    with pytest.raises(JobError, match=re.escape(words)) as wrong:
        read_settings(home)
    assert f"config.yaml:{place}:" in wrong.value.message


def test_all_mistakes_are_told_at_once(home: dict[str, str]) -> None:
    write(home, "engine: x\nkubernetes: {namespace: A_B}\n")
    with pytest.raises(JobError) as wrong:
        read_settings(home)
    assert len(wrong.value.problems) == 2


def test_a_file_that_cannot_be_read(home: dict[str, str]) -> None:
    Path(home["LONGBOAT_HOME"], "config.yaml").mkdir()
    with pytest.raises(EngineError, match="cannot read"):
        read_settings(home)


def test_keys_are_set_changed_and_removed(home: dict[str, str]) -> None:
    assert write_setting(home, "engine", "kubernetes").engine == "kubernetes"
    write_setting(home, "kubernetes.storage.claim", "training")
    write_setting(home, "kubernetes.pull_secrets", "[a, b]")
    write_setting(home, 'contexts."kind.lab".allow_host_paths', "true")
    settings = read_settings(home)
    assert settings.cluster("kind.lab") == ClusterSettings(
        storage=Storage(claim="training"), pull_secrets=("a", "b"), allow_host_paths=True
    )
    write_setting(home, "kubernetes.storage.claim", "other")
    assert read_settings(home).cluster().storage == Storage(claim="other")
    write_setting(home, "kubernetes.storage", None)
    write_setting(home, "kubernetes.storage.nfs", None)
    assert read_settings(home).cluster().storage is None
    assert "storage" not in Path(home["LONGBOAT_HOME"], "config.yaml").read_text()


def test_an_object_store_for_code_stands_beside_a_storage_or_alone(home: dict[str, str]) -> None:
    write_setting(home, "kubernetes.storage.url", "s3://bucket/team")
    write_setting(home, "kubernetes.storage.secret", "reader")
    alone = read_settings(home).cluster()
    assert alone == ClusterSettings(code_store=CodeStore(url="s3://bucket/team", secret="reader"))
    write_setting(home, "kubernetes.storage.claim", "training")
    both = read_settings(home).cluster()
    assert (both.storage, both.code_store) == (Storage(claim="training"), alone.code_store)


def test_the_driver_of_the_nodes_is_set_for_all_clusters_or_for_one(home: dict[str, str]) -> None:
    write(
        home,
        """
kubernetes: {gpu: {mode: hostpath, driver: /usr/lib/nvidia-384}}
contexts:
  new: {gpu: {mode: plugin}}
  other: {gpu: {mode: hostpath, driver: /opt/nvidia, libcuda: none}}
local: {gpu_isolation: required}
""",
    )
    settings = read_settings(home)
    libcuda = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert settings.cluster("old").gpu_driver == GpuDriver(folder="/usr/lib/nvidia-384", libcuda=libcuda)
    assert settings.cluster("new").gpu_driver is None
    assert settings.cluster("other").gpu_driver == GpuDriver(folder="/opt/nvidia")
    assert settings.local == {"gpu_isolation": "required"}


def test_what_was_written_by_hand_is_kept_when_a_key_is_set(home: dict[str, str]) -> None:
    write(home, ALL)
    before = read_settings(home)
    assert write_setting(home, "kubernetes.queue", "research") == before
    assert read_settings(home) == before


def test_texts_that_look_like_something_else_stay_texts(home: dict[str, str]) -> None:
    write_setting(home, "kubernetes.namespace", '"123"')
    assert write_setting(home, "engine", "local").cluster().namespace == "123"
    assert read_settings(home).cluster().namespace == "123"


@pytest.mark.parametrize(
    ("key", "value"), [("engine", "slurm"), ("kubernetes.storge.claim", "x"), ("kubernetes", "x"), ("image", "x")]
)
def test_a_mistake_changes_nothing(home: dict[str, str], key: str, value: str) -> None:
    write(home, ALL)
    with pytest.raises(JobError, match=f"config {key}"):
        write_setting(home, key, value)
    assert Path(home["LONGBOAT_HOME"], "config.yaml").read_text() == ALL


@pytest.mark.parametrize(("key", "value"), [("", "x"), ("a..b", "x"), ("kubernetes.", "x"), ("engine", "")])
def test_what_is_no_key_or_no_value(home: dict[str, str], key: str, value: str) -> None:
    with pytest.raises(UsageError):
        write_setting(home, key, value)


def test_the_image_is_the_jobs_then_the_settings_then_the_frameworks() -> None:
    torch = job(role(), role("ps", image="own:1"), framework="torch")
    images, notices = images_of(torch, ClusterSettings())
    assert images == {"worker": "pytorch/pytorch", "ps": "own:1"}
    assert len(notices) == 1
    assert "role worker" in notices[0] and "kubernetes.images.torch" in notices[0]
    assert images_of(torch, ClusterSettings(image="any:1")) == ({"worker": "any:1", "ps": "own:1"}, [])
    chosen = ClusterSettings(image="any:1", images={"torch": "torch:1"})
    assert images_of(torch, chosen)[0]["worker"] == "torch:1"
    assert images_of(job(framework="none"), ClusterSettings())[0] == {"worker": "python:3.12-slim"}
    assert images_of(job(framework="tensorflow"), ClusterSettings())[0] == {"worker": "tensorflow/tensorflow"}
