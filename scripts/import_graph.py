"""Which folder of src/longboat imports which: read from the source, imports inside of functions included.

Imports that only type checkers follow count too: who names a type depends on it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "longboat"


def parse(source: Path = SOURCE) -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(source.rglob("*.py"))}


def folder_imports(trees: dict[Path, ast.Module], source: Path = SOURCE) -> dict[str, set[str]]:
    """Folder (dotted, below longboat; "" is the top) to the other folders that its modules import."""
    modules = {module_of(file, source): folder_of(file, source) for file in trees}
    graph: dict[str, set[str]] = {folder: set() for folder in modules.values()}
    for file, tree in trees.items():
        folder = folder_of(file, source)
        for name in imported(tree, ("longboat." + folder).rstrip(".").split(".")):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name and modules[name] != folder:
                graph[folder].add(modules[name])
    return graph


def module_of(file: Path, source: Path) -> str:
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(("longboat", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def folder_of(file: Path, source: Path) -> str:
    return ".".join(file.parent.relative_to(source).parts)


def imported(tree: ast.Module, package: list[str]) -> Iterator[str]:
    """Full names of what a module imports; `package` is where its relative imports start."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
