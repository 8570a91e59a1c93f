"""Commands that are suggested look at the same place; a cluster that does not answer is told of in one line."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from longboat.cli.input.engine_option import complete_contexts, engine_options, placed, same_place
from tests.cli.conftest import Longboat

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: lab
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts:
- {name: lab, context: {cluster: c, user: u}}
- {name: large-lab, context: {cluster: c, user: u}}
"""


def said(*words: str) -> str:
    found: list[str] = []

    @click.command()
    @engine_options
    def command() -> None:
        found.append(placed("longboat logs RUN: look"))
        found.append(same_place())
        assert placed("look at `longboat ps`") == "look at `longboat ps`"

    command.main(list(words), standalone_mode=False)
    assert found[0] == f"longboat logs RUN{found[1]}: look"
    return found[1]


def test_the_place_is_repeated_unless_it_is_the_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGBOAT_ENGINE", raising=False)
    assert said() == ""
    assert said("--engine", "local") == ""
    assert said("--engine", "kubernetes") == " --engine kubernetes"
    assert said("--on", "lab") == said("--engine", "kubernetes", "--on", "lab") == " --on lab"
    assert (
        said("--on", "arn:aws:eks/my lab", "--namespace", "vision") == " --on 'arn:aws:eks/my lab' --namespace vision"
    )
    monkeypatch.setenv("LONGBOAT_ENGINE", "kubernetes")
    assert said("--engine", "kubernetes") == ""
    assert said("--engine", "local") == " --engine local"


def test_contexts_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(file))
    context, option = click.Context(click.Command("x")), click.Option(["--on"])
    assert [item.value for item in complete_contexts(context, option, "")] == ["lab", "large-lab"]
    assert [item.value for item in complete_contexts(context, option, "lar")] == ["large-lab"]
    file.write_text("][")
    assert complete_contexts(context, option, "") == []


@pytest.mark.parametrize("words", [("ps",), ("status", "run"), ("run", "--", "true"), ("logs", "run"), ("doctor",)])
def test_a_cluster_that_does_not_answer(longboat: Longboat, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    longboat.environment["KUBECONFIG"] = str(tmp_path / "kubeconfig")
    done = longboat(words[0], "--on", "lab", *words[1:], code=205)
    told = done.err + done.out
    assert "https://127.0.0.1:1" in told and "connection refused" in told
    assert "Traceback" not in told
    unknown = longboat(words[0], "--on", "labb", *words[1:], code=205)
    assert "no context 'labb'" in unknown.err + unknown.out


def test_install_says_what_it_lacks(longboat: Longboat) -> None:
    assert "--image" in longboat("install", code=201).err
    assert "expected a container image" in longboat("install", "--image", "bad image", "--dry-run", code=201).err
    assert "--remove" in longboat("install", "--remove", "--only", "x", code=201).err
    printed = longboat("install", "--image", "registry.example.org/longboat:1", "--dry-run").out
    assert printed.count("kind: ") >= 9 and "registry.example.org/longboat:1" in printed
    assert os.path.isdir(longboat.folder)
