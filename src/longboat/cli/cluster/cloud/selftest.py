"""`longboat cluster selftest`: a small cluster in a cloud is made, tried and taken down again, step by step."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longboat.cli.output.terminal import clean, is_terminal, say
from longboat.core.errors import EngineError, UsageError

if TYPE_CHECKING:
    from longboat.clusters.cloud.selftest import SelftestStep

LAST_LINES = 12  # of a failed step's log: an error with its hint, and what came before


@click.command("selftest", short_help="Try a cloud: make a small cluster, use it, take it down.")
@click.option("--cloud", type=click.Choice(["aws", "azure", "gcp"]), required=True, help="The cloud to try.")
@click.option("--region", metavar="REGION", help="Where (default: us-east-1, eastus or us-central1).")
@click.option("--gpu", is_flag=True, help="With a pool of one small GPU machine.")
@click.option("--image", metavar="IMAGE", help="Image that has Longboat: controller and autoscaler are tried, too.")
@click.option("--only", metavar="STEP,...", help="Only these: plan, up, status, run, gang, volume, files, gpu, down.")
@click.option("--keep", is_flag=True, help="Leave the cluster after a failure, to look at it.")
@click.option("--folder", default=".", metavar="DIR", help="Where the cluster file and the logs of the steps go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask: it costs money.")
def command(
    cloud: str, region: str | None, gpu: bool, image: str | None, only: str | None, keep: bool, folder: str, yes: bool
) -> int:
    """Make a small cluster in your account, use it as a user would, and take it down again. Exit code 0: all worked.

    It costs what such machines cost until it ends. It always ends with `down`, also after a failure or Ctrl-C, unless
    --keep was given.
    """
    from longboat.clusters.cloud.selftest import CLEANING, CLOUDS, cluster_text, steps

    region = region or CLOUDS[cloud].region
    name = f"selftest-{secrets.token_hex(3)}"
    place = Path(folder) / name
    chosen = [step for step in steps(cloud, name, str(place / "cluster.yaml"), with_gpu=gpu) if is_chosen(step, only)]
    check_names(only, [step.name for step in steps(cloud, name, "", with_gpu=gpu)])
    if not yes:
        if not is_terminal(sys.stdin):
            raise UsageError("a selftest costs money, and is asked for twice", hint="--yes says so without a question")
        click.confirm(
            f"make the cluster {name} on {cloud} in {region}, use it, and take it down?", abort=True, err=True
        )
    place.mkdir(parents=True)
    (place / "cluster.yaml").write_text(cluster_text(cloud, name, region, with_gpu=gpu, image=image))
    failed: list[SelftestStep] = []
    cleaning = [step for step in chosen if step.name == CLEANING]
    try:
        for step in (step for step in chosen if step.name != CLEANING):
            if not take(step, place):
                failed.append(step)
                break  # the others build on it
    finally:
        if not (failed and keep):
            failed += [step for step in cleaning if not take(step, place)]
    if failed:
        left = f"; {name} is left: longboat cluster down {name}" if keep else ""
        raise EngineError(f"{', '.join(step.name for step in failed)} failed{left}", hint=f"the logs are in {place}")
    say(f"longboat: all {len(chosen)} steps worked; the logs are in {place}")
    return 0


def is_chosen(step: SelftestStep, only: str | None) -> bool:
    return only is None or step.name in only.split(",")


def check_names(only: str | None, known: Sequence[str]) -> None:
    unknown = [name for name in (only or "").split(",") if name and name not in known]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: no such step", hint=f"steps: {', '.join(known)}")


def take(step: SelftestStep, place: Path) -> bool:
    """Run one step as a command of its own; its output goes to a file, its end is told."""
    log = place / f"{step.name}.log"
    began = time.monotonic()
    with open(log, "wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "longboat", *step.command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    took = f"{time.monotonic() - began:.0f} s"
    if done.returncode == 0:
        say(f"{step.name:8} ok      {took:>7}  {step.title}")
        return True
    say(f"{step.name:8} FAILED  {took:>7}  {step.title}: exit code {done.returncode}")
    for line in log.read_text(errors="replace").splitlines()[-LAST_LINES:]:
        say(f"  | {clean(line)}")
    return False
