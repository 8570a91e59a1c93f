"""`longboat cluster bundle`: all that `up` would install, in one file, for hosts without a network."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import click

from longboat.bundles.source.limits import size_text
from longboat.cli.cluster.target import spec_of, target_options
from longboat.cli.output.terminal import say
from longboat.clusters.offline.collect import make_bundle, this_machine
from longboat.clusters.offline.load import cache_folder
from longboat.clusters.offline.manifest import encode_manifest
from longboat.clusters.up import load_keys
from longboat.core.errors import UsageError
from longboat.core.words import counted
from longboat.engines.shared.home import Home


@click.command("bundle", short_help="Collect programs and images for hosts without a network.")
@target_options
@click.option("-o", "--output", required=True, metavar="FILE", help="The bundle.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def command(output: str, force: bool) -> None:
    """Collect all that longboat cluster up would install, in one file: packages with what they need, and images.

    Make it on a machine with a network and with the system of the hosts (Debian or Ubuntu, the same release). Carry the
    file to where the hosts are: longboat cluster up --from FILE needs no network, neither there nor on the hosts.
    """
    spec = spec_of()
    if not spec.hosts:
        raise UsageError("a cluster without hosts of yours has its programs already: there is nothing to collect")
    target = Path(output)
    if os.path.lexists(output) and not force:
        raise UsageError(f"{output} exists already", hint="--force overwrites it, -o names another file")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{output}: there is no such folder")
    keys = load_keys(spec, [this_machine()])
    manifest = make_bundle(spec, target, cache_folder(Home()), keys, say)
    packages = counted(len(manifest.packages) - 1, "package")  # their index is one of the files
    say(
        f"longboat: wrote {output}: Kubernetes {manifest.kubernetes} for {manifest.system} on {manifest.architecture}, "
        f"{packages}, {counted(len(manifest.images), 'image')}, {size_text(manifest.size)}; "
        f"bundle.json {hashlib.sha256(encode_manifest(manifest)).hexdigest()}"
    )
    say(f"longboat: where the hosts are: longboat cluster up --from {output}")
