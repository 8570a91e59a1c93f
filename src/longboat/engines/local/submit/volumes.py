"""Volumes of a cluster's job on this machine: claims, NFS exports and absolute mounts become local folders. Pure.

The job that comes out names folders of this machine only. Nothing is mounted: commands, `env`, `data` and `checkpoints`
that name a target such as /mnt/data are given the local folder instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.jobs import Checkpoints, Command, Job, Role, Value, Volume
from longboat.engines.refusals import Problem
from longboat.storage.urls import is_object_url

_PLAIN_PATH = lazy_pattern(r"[\w@%+=:,./-]+")
"""What may stand in a shell command without quotes, inside of quotes or not."""


class LocalFolders(Value, frozen=True):
    """The settings `local.claims` and `local.mounts`: folders of this machine, and where this machine makes claims."""

    claims: dict[str, str] = {}  # claim -> folder
    mounts: dict[str, str] = {}  # target, or server:/path of an NFS export -> folder
    made: str = ""  # folder in which claims with a size are made, as a cluster makes them


class LocalizedJob(NamedTuple):
    job: Job
    problems: list[Problem]
    notices: list[str]
    mounts: dict[str, str] = {}  # absolute targets -> folders of this machine, for containers, which can have both


class _VolumeSource(NamedTuple):
    """Folder of a volume on this machine, or why there is none."""

    folder: str = ""
    notice: str = ""
    problem: Problem | None = None


def localize(
    job: Job, folders: LocalFolders, *, base: str, exists: Callable[[str], bool], is_contained: bool = False
) -> LocalizedJob:
    """`base`: what relative paths start from. `exists`: whether there is such a place on this machine. `is_contained`:
    every rank runs in a container, where a volume is mounted at its target as well."""
    volumes: list[Volume] = []
    problems: list[Problem] = []
    notices = [f"`queue: {job.queue}` is not used here: this machine has one queue"] if job.queue is not None else []
    renamed: dict[str, str] = {}
    for volume in job.volumes:
        if volume.scratch:
            here = volume.target.lstrip("/")
            if here != volume.target:
                renamed[volume.target] = here
            volumes.append(msgspec.structs.replace(volume, target=here))
            continue
        source = _source_of(volume, folders, base, exists)
        if source.problem is not None:
            problems.append(source.problem)
            continue
        notices += [source.notice] if source.notice else []
        if volume.read_only:
            notices.append(
                f"`volumes.{volume.target}.read_only`: not enforced here, ranks can write to {source.folder}"
            )
        is_absolute = volume.target.startswith("/")
        if is_absolute and volume.target != source.folder:
            renamed[volume.target] = source.folder
        target = source.folder if is_absolute else volume.target
        volumes.append(Volume(target=target, path=source.folder))
    problems += _nested(volumes)
    if renamed and not is_contained:
        notices.append(
            f"nothing is mounted here: commands, env and data that name {', '.join(renamed)} are given its folder;"
            " a script that names it finds nothing there"
        )
    changed = msgspec.structs.replace(job, volumes=tuple(volumes), checkpoints=_in_volume(job.checkpoints, volumes))
    mounts = {target: folder for target, folder in renamed.items() if os.path.isabs(folder)}
    return LocalizedJob(_with_paths(changed, renamed), problems, notices, mounts)


def _in_volume(checkpoints: Checkpoints, volumes: Sequence[Volume]) -> Checkpoints:
    """A relative folder in a volume of the working copy is a folder of that volume, as in a cluster."""
    to = checkpoints.to
    if to is None or os.path.isabs(to) or is_object_url(to):
        return checkpoints
    for volume in volumes:
        if volume.path is not None and not os.path.isabs(volume.target):
            inner = os.path.relpath(to, volume.target)
            if inner.partition("/")[0] != "..":
                return msgspec.structs.replace(checkpoints, to=os.path.normpath(os.path.join(volume.path, inner)))
    return checkpoints


def _nested(volumes: Sequence[Volume]) -> list[Problem]:
    """In a working copy a volume is a link: another one behind it would be made in the folder of the first."""
    targets = [os.path.normpath(volume.target) for volume in volumes if not os.path.isabs(volume.target)]
    return [
        (
            f"`volumes.{inner}` lies in `volumes.{outer}`, and a volume is a link here",
            "give it a place beside the other",
        )
        for inner in targets
        for outer in targets
        if inner.startswith(f"{outer}/")
    ]


def _source_of(volume: Volume, folders: LocalFolders, base: str, exists: Callable[[str], bool]) -> _VolumeSource:
    place = f"`volumes.{volume.target}`"
    named = volume.claim or volume.nfs or ""
    mapped = folders.mounts.get(volume.target) or folders.mounts.get(volume.nfs or "")
    mapped = mapped or folders.claims.get(volume.claim or "")
    if mapped is not None:
        folder, setting = os.path.expanduser(mapped), "the settings"
    elif volume.path is not None:
        folder, setting = os.path.normpath(os.path.join(base, os.path.expanduser(volume.path))), ""
    elif volume.target.startswith("/") and exists(volume.target):
        folder, setting = volume.target, "this machine has it"
    elif volume.claim and volume.size is not None and folders.made:
        made = os.path.join(folders.made, volume.claim)
        return _VolumeSource(made, f"{place}: claim {volume.claim} is made here as the folder {made}")
    else:
        kind = "claim" if volume.claim else "nfs"
        reason = f"{place}: this machine has no {kind} {named}"
        return _VolumeSource(problem=(reason, f"name a folder for it: {_setting(volume)}"))
    if not exists(folder):
        is_settable = mapped is None and volume.target.startswith("/")
        helps = f"mkdir -p {folder}" + (f", or {_setting(volume)}" if is_settable else "")
        return _VolumeSource(problem=(f"{place}: there is no folder {folder}", helps))
    if volume.target.startswith("/") and volume.target != folder and not _PLAIN_PATH.fullmatch(folder):
        reason = f"{place}: {folder} stands for {volume.target} in commands, where its blanks would cut it"
        return _VolumeSource(problem=(reason, "choose a folder whose path has no blanks or quotes"))
    source = f"claim {volume.claim}" if volume.claim else f"nfs {volume.nfs}" if volume.nfs else "it"
    return _VolumeSource(folder, f"{place}: {source} is the folder {folder} ({setting})" if setting else "")


def _setting(volume: Volume) -> str:
    if volume.claim:
        return f"longboat config set local.claims.{volume.claim} FOLDER"
    key = volume.nfs or volume.target
    return f"longboat config set 'local.mounts.\"{key}\"' FOLDER"


def _with_paths(job: Job, renamed: dict[str, str]) -> Job:
    """The job with other folders in everything that names a path. A script that names one itself is not changed."""
    if not renamed:
        return job
    targets = "|".join(re.escape(target) for target in sorted(renamed, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w./~$}}-])({targets})(?![\w.-])")

    def text(value: str) -> str:
        return pattern.sub(lambda match: renamed[match[1]], value)

    def command(value: Command) -> Command:
        return text(value) if isinstance(value, str) else tuple(text(word) for word in value)

    def role(value: Role) -> Role:
        env = {name: text(setting) for name, setting in value.env.items()}
        return msgspec.structs.replace(value, run=command(value.run), env=env)

    to, resume = job.checkpoints.to, job.checkpoints.resume
    return msgspec.structs.replace(
        job,
        roles=tuple(role(each) for each in job.roles),
        setup=job.setup and text(job.setup),
        data=tuple(msgspec.structs.replace(item, to=text(item.to)) for item in job.data),
        checkpoints=msgspec.structs.replace(job.checkpoints, to=to and text(to), resume=resume and text(resume)),
    )
