from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.nodes import Node


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(command: str | list[str], **keys: Any) -> Node:
        nodes.append(Node(tmp_path / f"n{len(nodes)}", command, **keys))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()
