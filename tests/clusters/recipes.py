"""Readers of a recipe: they type every line of the page on their own machine, a laptop or a workstation.

Where a page writes a cluster file, what only test hosts need is added to it: a repository and images of their own, and
what a container cannot have. Pods find the images of the pages on the nodes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import yaml

from testbed import binaries, images
from testbed.hosts import Host
from tests.clusters.conftest import Lab
from tests.clusters.workstation import install_longboat
from tests.docs import test_examples as pages

RECIPES = pages.ROOT / "docs" / "recipes"
IMAGE = "docker.io/pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
NAMES = (IMAGE, "docker.io/library/python:3.12-slim")
"""What the pages call the image of their pods, and that of jobs which name none. Here both have numpy and no more."""
OF_TEST_HOSTS = ("source", "network", "kubelet")


def give_images(hosts: Sequence[Host]) -> None:
    """To nodes that run pods; they cannot pull any."""
    ctr = "sudo ctr -n k8s.io images"
    for host in hosts:
        for name in ("python", "numpy"):  # the archive of the second has no layers of the first
            with open(images.archive(name, binaries.find(("tools",))), "rb") as stream:
                subprocess.run(host.command(f"{ctr} import - >/dev/null"), stdin=stream, check=True, timeout=300)
        for name in NAMES:
            host.run(f"{ctr} tag --force {images.reference('numpy')} {name}")


def copy_examples(folder: Path) -> None:
    left_out = shutil.ignore_patterns("__pycache__", "checkpoints")
    shutil.copytree(pages.ROOT / "examples", folder / "examples", ignore=left_out)


class Reader:
    """On a laptop, whose ssh knows the hosts by the page's names."""

    def __init__(self, lab: Lab, names: Sequence[str]) -> None:
        self.lab = lab
        self.folder = lab.folder / "folder"
        self.extra = yaml.safe_load((lab.folder / "cluster.yaml").read_text())
        copy_examples(self.folder)
        shutil.copy(lab.folder / "key.asc", self.folder)
        config = lab.home / ".ssh" / "config"
        known = zip(names, lab.group.hosts, strict=True)
        aliases = [f"Host {name}\n  HostName {host.address}\n" for name, host in known]
        config.write_text("".join(aliases) + config.read_text())

    def read(self, page: str, *, after: str = "", until: str = "") -> None:
        """Type its blocks: those after a heading, those before one."""
        text = (RECIPES / page).read_text(encoding="utf-8")
        assert after in text and until in text
        text = text.partition(after)[2] if after else text
        for kind, block in pages.BLOCK.findall(text.partition(until)[0] if until else text):
            if kind == "console":
                self.type(block)

    def type(self, block: str) -> None:
        self.execute(block)
        if "longboat cluster init" in block:
            self.settle()
        if "ready, ... changes" in block:
            give_images(self.lab.group.hosts[-1:])  # the first is the control plane, unless it is alone

    def execute(self, block: str) -> None:
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        pages.run_block(block, self.folder, {**self.lab.environment, "PATH": path, "NO_COLOR": "1"})

    def settle(self) -> None:
        file = self.folder / "cluster.yaml"
        file.write_text(self.completed(file.read_text()))

    def completed(self, text: str) -> str:
        return yaml.safe_dump(yaml.safe_load(text) | {name: self.extra[name] for name in OF_TEST_HOSTS})


class WorkstationReader(Reader):
    """At the host itself, where Longboat is installed, as a user who may sudo; in his folder `desk`."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, [lab.group.hosts[0].name])
        (self.host,) = lab.group.hosts
        install_longboat(self.host)
        packed = subprocess.run(["tar", "-c", "-C", str(self.folder), "."], stdout=subprocess.PIPE, check=True).stdout
        unpack = self.host.command("mkdir desk && tar -x -C desk --no-same-owner")
        subprocess.run(unpack, input=packed, check=True, timeout=60)

    def execute(self, block: str) -> None:
        script = pages.script(pages.commands(block))
        command = self.host.command(f"cd desk && NO_COLOR=1 bash -c {shlex.quote(script)} </dev/null")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, timeout=900)
        pages.compare(block, done.stdout)

    def settle(self) -> None:
        text = self.host.run("cat desk/cluster.yaml")
        self.host.run("cat > desk/cluster.yaml", text=self.completed(text))
