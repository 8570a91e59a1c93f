from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.nodes import Node
from tests.launcher.pods import Pods
from tests.storage.conftest import s3

__all__ = ["s3"]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(command: str | list[str], **keys: Any) -> Node:
        nodes.append(Node(tmp_path / f"n{len(nodes)}", command, **keys))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def make_pods(tmp_path: Path) -> Iterator[Callable[..., Pods]]:
    made: list[Pods] = []

    def make(*arguments: Any, **keys: Any) -> Pods:
        made.append(Pods(tmp_path / f"gang{len(made)}", *arguments, **keys))
        made[-1].folder.mkdir()
        return made[-1]

    yield make
    for pods in made:
        pods.close()
