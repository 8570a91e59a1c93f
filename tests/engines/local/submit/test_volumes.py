"""A cluster's volumes on this machine, as data: which folder stands for what, and what is said about it."""

from __future__ import annotations

import pytest

from longboat.core.jobs import Checkpoints, DataImport, Job, Role, Volume
from longboat.engines.local.submit.volumes import LocalFolders, LocalizedJob, localize

FOLDERS = LocalFolders(
    claims={"datasets": "/home/me/data"},
    mounts={"/mnt/models": "/home/me/models", "nas.example.org:/export": "/home/me/nas"},
    made="/home/me/.longboat/claims",
)
HERE = ("/home/me/data", "/home/me/models", "/home/me/nas", "/project/data", "/opt/shared")


def localized(*volumes: Volume, run: str | tuple[str, ...] = "true", **more: object) -> LocalizedJob:
    role = Role(name="worker", run=run, env={"DATA": "/mnt/data/x"})
    given = Job(name="job", roles=(role,), volumes=volumes, **more)  # type: ignore[arg-type]
    return localize(given, FOLDERS, base="/project", exists=HERE.__contains__)


@pytest.mark.parametrize(
    ("volume", "target", "path", "said"),
    [
        (Volume(target="data", path="./data"), "data", "/project/data", None),
        (Volume(target="data", claim="datasets"), "data", "/home/me/data", "claim datasets is the folder"),
        (
            Volume(target="/mnt/data", claim="datasets"),
            "/home/me/data",
            "/home/me/data",
            "that name /mnt/data are given",
        ),
        (Volume(target="/mnt/models", claim="models"), "/home/me/models", "/home/me/models", "the settings"),
        (Volume(target="/nas", nfs="nas.example.org:/export"), "/home/me/nas", "/home/me/nas", "the settings"),
        (Volume(target="/opt/shared", claim="else"), "/opt/shared", "/opt/shared", "this machine has it"),
        (Volume(target="/d", path="/opt/shared"), "/opt/shared", "/opt/shared", "that name /d are given"),
        (Volume(target="/d", claim="new", size=1), *2 * ("/home/me/.longboat/claims/new",), "is made here"),
        (Volume(target="data", path="data", read_only=True), "data", "/project/data", "read_only"),
    ],
)
def test_which_folder_a_volume_is(volume: Volume, target: str, path: str, said: str | None) -> None:
    found = localized(volume)
    assert found.problems == []
    assert found.job.volumes == (Volume(target=target, path=path),)
    assert (said or "") in " ".join(found.notices) and bool(said) is bool(found.notices)


@pytest.mark.parametrize(
    ("volume", "reason", "hint"),
    [
        (Volume(target="/d", claim="other"), "no claim other", "longboat config set local.claims.other FOLDER"),
        (Volume(target="/d", nfs="a.b:/c"), "no nfs a.b:/c", "longboat config set 'local.mounts.\"a.b:/c\"' FOLDER"),
        (Volume(target="d", path="./gone"), "there is no folder /project/gone", "mkdir -p /project/gone"),
        (Volume(target="/d", path="/gone"), "there is no folder /gone", "local.mounts"),
    ],
)
def test_a_missing_volume_gets_a_hint_which_setting_names_it(volume: Volume, reason: str, hint: str) -> None:
    found = localized(volume)
    assert [reason in told and hint in (helps or "") for told, helps in found.problems] == [True]


def test_all_missing_volumes_are_reported_at_once() -> None:
    found = localized(Volume(target="/a", claim="a"), Volume(target="/b", claim="b"), queue="research")
    assert len(found.problems) == 2 and found.notices == [
        "`queue: research` is not used here: this machine has one queue"
    ]


def test_paths_in_commands_env_data_and_checkpoints_follow() -> None:
    found = localized(
        Volume(target="/mnt/data", claim="datasets"),
        Volume(target="/scratch", scratch=True),
        run="train --in=/mnt/data/a --not /mnt/database x/mnt/data '/mnt/data' --tmp /scratch/t",
        setup="ls /mnt/data",
        data=(DataImport(url="https://a/b", to="/mnt/data/b"),),
        checkpoints=Checkpoints(to="/mnt/data/ckpt"),
    )
    job = found.job
    assert job.roles[0].run == (
        "train --in=/home/me/data/a --not /mnt/database x/mnt/data '/home/me/data' --tmp scratch/t"
    )
    assert (job.roles[0].env["DATA"], job.setup) == ("/home/me/data/x", "ls /home/me/data")
    assert (job.data[0].to, job.checkpoints.to) == ("/home/me/data/b", "/home/me/data/ckpt")
    assert [volume.target for volume in job.volumes] == ["/home/me/data", "scratch"]
    words = localized(Volume(target="/mnt/data", claim="datasets"), run=("ls", "/mnt/data/a b")).job.roles[0].run
    assert words == ("ls", "/home/me/data/a b")


def test_a_folder_that_a_shell_would_cut_is_not_put_into_commands() -> None:
    folders = LocalFolders(claims={"c": "/home/me/my data"})
    given = Job(name="job", roles=(Role(name="worker", run="ls /d"),), volumes=(Volume(target="/d", claim="c"),))
    found = localize(given, folders, base="/", exists=lambda path: True)
    assert found.problems and "blanks" in found.problems[0][0]


def test_containers_have_a_volume_at_its_target_as_well() -> None:
    volumes = (Volume(target="/mnt/data", path="/here"), Volume(target="/mnt/scratch", scratch=True))
    given = Job(name="job", roles=(Role(name="worker", run="true"),), volumes=volumes)
    here = localize(given, LocalFolders(), base="/", exists=lambda path: True, is_contained=True)
    assert here.mounts == {"/mnt/data": "/here"} and here.notices == [] and here.problems == []
    without = localize(given, LocalFolders(), base="/", exists=lambda path: True)
    assert without.job == here.job and "nothing is mounted" in without.notices[0]


def test_a_volume_in_another_is_refused_before_it_is_tried() -> None:
    outer, inner = Volume(target="data", path="./data"), Volume(target="data/./in", path="/opt/shared")
    assert [reason for reason, _ in localized(outer, inner).problems] == [
        "`volumes.data/in` lies in `volumes.data`, and a volume is a link here"
    ]
    assert localized(outer, Volume(target="data2", path="/opt/shared")).problems == []


@pytest.mark.parametrize(
    ("to", "kept"),
    [
        ("data/ck", "/project/data/ck"),
        ("./data", "/project/data"),
        ("data2/ck", "data2/ck"),
        ("/data/ck", "/data/ck"),
        ("s3://data/ck", "s3://data/ck"),
    ],
)
def test_checkpoints_in_a_volume_are_in_its_folder(to: str, kept: str) -> None:
    made = localized(Volume(target="data", path="./data"), checkpoints=Checkpoints(to=to))
    assert made.job.checkpoints.to == kept
