"""The list of nodes as kubectl prints it, with what hostile nodes state about themselves; marks of an upgrade."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.apply import nodes
from longboat.clusters.hosts.connection import CommandResult, HostUnreachable, Line
from longboat.clusters.hosts.output import HEAD, TAIL
from longboat.core.errors import EngineError
from tests.clusters.worlds import packed

FORGED = "x\nw-1\t10.244.0.0/16\t\t\t\t\t\u0085w-1\t10.244.0.0/16\u2028w-1\t"


def look_up(item: Any, path: str) -> str:
    """As kubectl has it: texts raw, maps and lists as JSON, nothing for what is not there."""
    path, _, choice = path.partition("[?(@.type==")
    for key in re.split(r"(?<!\\)\.", path)[1:]:
        item = (item or {}).get(key.replace("\\", ""))
    if choice:
        return " ".join(json.dumps(entry) for entry in item or () if entry["type"] == "Ready")
    if isinstance(item, str):
        return item
    return "" if item is None else json.dumps(item, ensure_ascii=False)


class Control:
    """A control plane whose kubectl prints objects by a template, or that runs scripts with a kubectl of the test."""

    name = "cp-0"

    def __init__(self, objects: list[dict[str, Any]], shell: Callable[[str], str] | None = None) -> None:
        self.objects, self.shell = objects, shell

    def run(
        self, script: str, *, stdin: bytes | Path = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        if self.shell:
            return CommandResult(code=0, stdout=self.shell(script), stderr="")
        template = script.partition("{range .items[*]}")[2].partition("{end}")[0]
        parts = re.findall(r'\{"(.*?)"\}|\{(\..*?)\}(?=\{|/|$)|(/)', template)
        lines = (
            "".join(
                look_up(item, path) if path else slash or text.encode().decode("unicode_escape")
                for text, path, slash in parts
            )
            for item in self.objects
        )
        return CommandResult(code=0, stdout=packed("".join(lines)), stderr="")

    def close(self) -> None: ...


def node(name: str, text: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"zone": "a"},
            "annotations": {"longboat.dev/cluster-settings": text, "longboat.dev/upgrading": text, "other": text},
        },
        "spec": {"podCIDR": "10.244.1.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {
            "addresses": [{"type": "Hostname", "address": text}, {"type": "InternalIP", "address": text or "10.0.0.2"}],
            "conditions": [{"type": "Ready", "status": text or "True"}, {"type": "Ready", "status": text}],
            "nodeInfo": {"kubeletVersion": text or "v1.36.4"},
        },
    }


def test_a_node_and_one_that_has_said_nothing_yet() -> None:
    full, empty = nodes.read_nodes(Control([node("w-0"), {"metadata": {"name": "w-1"}}]))
    assert (full.name, full.address, full.pods, full.version) == ("w-0", "10.0.0.2", "10.244.1.0/24", "v1.36.4")
    assert full.is_ready and full.is_cordoned and full.labels == (("zone", "a"),) and full.taints == ("k=:NoSchedule",)
    assert (empty.name, empty.address, empty.pods, empty.is_ready, empty.is_cordoned) == ("w-1", "", "", False, False)


def test_no_text_of_a_node_passes_for_another_node() -> None:
    views = nodes.read_nodes(Control([node("w-0", FORGED), node("w-1")]))
    assert [(view.name, view.pods) for view in views] == [("w-0", "10.244.1.0/24"), ("w-1", "10.244.1.0/24")]
    assert views[0].address == "" and views[0].upgrading == FORGED and views[0].version == FORGED


def test_a_control_plane_that_is_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Restarting(Control):
        looks = 0

        def run(self, script: str, **rest: Any) -> CommandResult:
            self.looks += 1
            if self.looks < 3:
                raise HostUnreachable(self.name, "no route to host")
            return super().run(script, **rest)

    monkeypatch.setattr(nodes, "_LOOK_S", 0.0)
    assert [view.name for view in nodes.wait_until_ready(Restarting([node("w-0")]), ["w-0"], 60)] == ["w-0"]
    with pytest.raises(HostUnreachable):
        nodes.wait_until_ready(Restarting([node("w-0")]), ["w-0"], -1)


def test_a_list_that_was_cut_is_not_understood() -> None:
    class Cut(Control):
        def run(self, script: str, **rest: Any) -> CommandResult:
            whole = super().run(script, **rest).stdout
            return CommandResult(code=0, stdout=f"{whole[:40]}\n[... 9 bytes left out ...]\n{whole[90:]}", stderr="")

    with pytest.raises(EngineError, match="was cut off"):
        nodes.read_nodes(Cut([node("w-0"), node("w-1")]))


def kubectl(folder: Path, script: str) -> Callable[[str], str]:
    """A shell whose kubectl is this script. Fails as the script that it is given fails."""
    (folder / "kubectl").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "kubectl").chmod(0o755)
    return lambda text: subprocess.check_output(["sh", "-c", f"PATH={folder}:$PATH\n{text}"], text=True)


def test_thousands_of_nodes_fit_into_what_a_connection_keeps(tmp_path: Path) -> None:
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.{number}": "true" for number in range(60)}
    lines = [f"w-{number}\t10.{number % 256}.0.0/24\t\t\t{json.dumps(labels)}\t\t\t\t\n" for number in range(2000)]
    (tmp_path / "list").write_text("".join(lines))
    shell = kubectl(tmp_path, f"cat {tmp_path}/list")
    sent: list[int] = []

    def counted(script: str) -> str:
        answer = shell(script)
        sent.append(len(answer))
        return answer

    views = nodes.read_nodes(Control([], counted))
    assert [view.name for view in views] == [f"w-{number}" for number in range(2000)]
    assert len("".join(lines)) > HEAD + TAIL > sent[0]


def test_pods_of_one_node_that_cannot_be_listed_are_not_taken_for_none(tmp_path: Path) -> None:
    shell = kubectl(tmp_path, 'case "$*" in *w-0*) exit 3 ;; esac')
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        nodes.read_trainings(Control([], shell), ["w-0", "w-1"])
    assert nodes.read_trainings(Control([], shell), ["w-1"]) == {}


def test_no_owner_of_a_pod_passes_for_another_pod() -> None:
    def pod(name: str, kind: str, is_controller: bool = True) -> dict[str, Any]:
        owners = [{"kind": kind, "controller": is_controller}]
        return {"metadata": {"name": name, "namespace": "a", "ownerReferences": owners}, "spec": {"nodeName": "w-0"}}

    pods = [pod("train", "Job\nw-0\ta/forged\t"), pod("web", "ReplicaSet"), pod("kept", "ReplicaSet", False)]
    assert nodes.read_trainings(Control(pods), ["w-0"]) == {"w-0": ["a/train", "a/kept"]}


@pytest.mark.parametrize(("answer", "is_changed"), [("true", False), ("", True)])
def test_a_cordon_and_its_mark_are_one_request(tmp_path: Path, answer: str, is_changed: bool) -> None:
    """Cut off between two of them, a mark would claim the next cordon of the owner."""
    calls = tmp_path / "calls"
    shell = kubectl(tmp_path, f"case \"$*\" in *' get '*) echo '{answer}' ;; *) echo \"$*\" >> {calls} ;; esac")
    nodes.cordon_for_upgrade(Control([], shell), "w-0", "1.36.4")
    written = calls.read_text().splitlines() if calls.exists() else []
    patch = {"metadata": {"annotations": {"longboat.dev/upgrading": "1.36.4"}}, "spec": {"unschedulable": True}}
    assert [json.loads(call.partition(" -p ")[2]) for call in written] == [patch] * is_changed
    nodes.end_upgrade(Control([], shell), "w-0")
    ends = calls.read_text().splitlines()[len(written) :] if calls.exists() else []
    gone = {"metadata": {"annotations": {"longboat.dev/upgrading": None}}, "spec": {"unschedulable": None}}
    assert [json.loads(call.partition(" -p ")[2]) for call in ends] == ([] if not answer else [gone])


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_a_node_is_deleted_though_the_api_server_is_busy(tmp_path: Path, failures: int) -> None:
    calls = tmp_path / "calls"
    shell = kubectl(tmp_path, f'echo "$*" >> {calls}; [ $(wc -l < {calls}) -gt {failures} ]')
    quick: Callable[[str], str] = lambda script: shell(f"sleep() {{ :; }}\n{script}")  # noqa: E731
    if failures == 3:
        with pytest.raises(subprocess.CalledProcessError):
            nodes.delete_node(Control([], quick), "w-0")
    else:
        nodes.delete_node(Control([], quick), "w-0")
    assert len(calls.read_text().splitlines()) == min(failures + 1, 3)


@pytest.mark.parametrize("failures", [0, 3, 5])
def test_a_drain_goes_on_though_the_api_server_is_busy(tmp_path: Path, failures: int) -> None:
    calls = tmp_path / "calls"
    fails = f"[ $(wc -l < {calls}) -gt {failures} ]"
    shell = kubectl(tmp_path, f'case "$*" in *" drain "*) echo "$*" >> {calls}; {fails} ;; *) echo node/w-0 ;; esac')
    quick: Callable[[str], str] = lambda script: shell(f"sleep() {{ :; }}\n{script}")  # noqa: E731
    if failures == 5:
        with pytest.raises(subprocess.CalledProcessError):
            nodes.drain(Control([], quick), "w-0", grace_s=60)
    else:
        nodes.drain(Control([], quick), "w-0", grace_s=60)
    assert len(calls.read_text().splitlines()) == min(failures + 1, 5)
