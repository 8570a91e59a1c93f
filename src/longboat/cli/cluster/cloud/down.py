"""`longboat cluster down` of a cluster on AWS: the stack goes, data only when asked for, and nothing else is left."""

from __future__ import annotations

import os
import sys

import click

from longboat.cli.cluster.cloud.plan import deployable
from longboat.cli.cluster.cloud.resource_table import ResourceTable
from longboat.cli.output.terminal import clean, is_terminal, say
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws.down import AwsDown, StoredData
from longboat.clusters.cloud.same_place import check_same_place
from longboat.clusters.kubeconfig_file import leave_context
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import forget_spec
from longboat.core.errors import EngineError, UsageError
from longboat.core.words import counted, listing
from longboat.engines.shared.home import Home

MOST_SHOWN = 10  # in one line; the cloud's own tools list the rest


def down_cloud(spec: ClusterSpec, *, yes: bool, purges: bool, output: str) -> int:
    cloud = deployable(spec)
    if not yes and not is_terminal(sys.stdin):
        raise UsageError("taking a cluster down is asked for twice", hint="--yes says so without a question")
    session = AwsSession(cloud.region)
    account = session.account()
    check_same_place(spec, account, Home())
    work = AwsDown(spec.name, session)
    data = work.data()
    is_there = bool(data.names) or work.stack.look() is not None
    if not yes:
        confirm(spec, data, purges=purges)
    left = work.run(ResourceTable(output).listen, purged=data if purges else StoredData())
    kept = () if purges else data.names
    leave_context(spec.name, os.environ, lambda text: say(clean(text)))
    if kept:
        say(f"longboat: kept, with what users stored, and paid for: {clean(listing(kept, MOST_SHOWN))}")
        say("hint: the same command with --purge-data deletes it; storage: {efs: fs-...} uses a file system again")
    others = [each for each in left if each.id.partition("/")[2] not in kept and each.id not in kept]
    for each in others:
        say(f"longboat: left: {each.kind} {clean(each.id)}")
    if others:
        raise EngineError(
            f"{spec.name}: {counted(len(others), 'thing')} with its tag are left in {cloud.region}",
            hint="the same command again looks once more: AWS lists some things for minutes after they are gone",
        )
    if not kept:  # else the name is still needed, for --purge-data
        forget_spec(spec.name, Home())
    word = "is gone" if is_there else f"is not there, in the account {account}"
    say(f"longboat: {spec.name} {word}; nothing else with its tag is left in {cloud.region}")
    return 0


def confirm(spec: ClusterSpec, data: StoredData, *, purges: bool) -> None:
    question = f"take down {spec.name} on AWS, and all that runs there"
    if data.names:
        names = listing(data.names, MOST_SHOWN)
        question += f", and DELETE {names} with what users stored" if purges else f"; {names} stay"
    click.confirm(f"{question}?", abort=True, err=True)
