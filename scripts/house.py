"""Checks rules of the source tree that no ready-made linter knows: class names, folders, their `__init__`, copies.

Also that times and limits say why they have their value. One line for each violation.
Usage: python scripts/house.py [FOLDER], by default src/longboat.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from import_graph import folder_imports

SOURCE = Path(__file__).resolve().parent.parent / "src" / "longboat"
ROOT = SOURCE.parents[1]
TESTS = ROOT / "tests"
TOOLS = [ROOT / name for name in ("testbed", "bench", "scripts")]  # what is not installed, and is read as often
MOST_MODULES = 13  # what a reader can look over at once: a dozen and a little
LONGEST_INIT = 12
VAGUE = {"one", "found", "told", "what"}  # names of locals that make a reader look twice
MOST_LINES = 400  # of a module: what a reader can keep in mind
MOST_EQUAL_LINES = 8  # fewer are often a signature or a call that two places happen to share
# Names of times and limits. Units (HOUR_S), ports and how much is read at once (CHUNK) need no reason.
LIMITS = re.compile(
    r"(^|_)(MOST|LEAST|MAX|LONGEST|SHORTEST|LARGEST|SMALLEST|DEEPEST|OLDEST|LIMIT|PATIENCE)(_|$)|_(S|BYTES|LINES)$"
)
UNITS = re.compile(r"_?(HOUR|DAY|WEEK)_S")
_NUMERIC = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Tuple, ast.Load)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Names that mean one thing each in the place where they are; why there may be two.
TWICE = {
    "Handler": "BaseHTTPRequestHandler's usual name, local to the function that serves",
    "Meta": "the few fields of an object's metadata that one reader needs",
    "Status": "the few fields of an object's status that one reader needs",
    "Source": "where log lines come from, and where a transfer reads: a protocol of two methods each",
}


def class_names(trees: dict[Path, ast.Module]) -> list[str]:
    """Classes that share their name; a name with an underscore stays in its module and may be used again."""
    homes = defaultdict(list)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{file}:{node.lineno}")
    return [
        f"{places[-1]}: class {name} is defined in {places[0]} too; rename one, or list it in {__file__}"
        for name, places in homes.items()
        if len(places) > 1 and name not in TWICE
    ]


def folders(source: Path) -> list[str]:
    problems = []
    for init in sorted(source.rglob("__init__.py")):
        modules = len(list(init.parent.glob("*.py"))) - 1
        if modules > MOST_MODULES:
            problems.append(f"{init.parent}: {modules} modules; a folder holds at most {MOST_MODULES}")
    return problems


def vague_names(trees: dict[Path, ast.Module]) -> list[str]:
    """Locals and parameters that are not called by what they hold; fields of values may be."""
    problems = []
    for file, tree in trees.items():
        nodes = [node for function in ast.walk(tree) if isinstance(function, _SCOPES) for node in ast.walk(function)]
        for node in dict.fromkeys(nodes):
            name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
            if name in VAGUE and not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
                problems.append(f"{file}:{node.lineno}: a local called {name}; call it by what it holds")
    return problems


def lengths(files: Iterable[Path]) -> list[str]:
    counts = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    return [f"{file}: {count} lines; at most {MOST_LINES}" for file, count in counts.items() if count > MOST_LINES]


def introductions(trees: dict[Path, ast.Module]) -> list[str]:
    """Each `__init__` says what belongs into its folder and what does not: two sentences at least, few lines."""
    problems = []
    for file, tree in trees.items():
        text = ast.get_docstring(tree) or ""
        if file.name == "__init__.py" and not (
            len(re.findall(r"\.(?=\s|$)", text)) >= 2 and len(text.splitlines()) <= LONGEST_INIT
        ):
            problems.append(
                f"{file}: its docstring says in a few lines what belongs into this folder and what does not"
            )
    return problems


def permissions(trees: dict[Path, ast.Module], source: Path) -> list[str]:
    """The folders that a folder imports are named after "may import" in its `__init__`; all may import `core`."""
    problems = []
    for folder, others in folder_imports(trees, source).items():
        init = source / folder.replace(".", "/") / "__init__.py"
        if not folder or init not in trees:  # `import longboat` loads what is asked for
            continue
        said = re.search(r"may\s+import(.*)", ast.get_docstring(trees[init]) or "", re.IGNORECASE | re.DOTALL)
        named = re.findall("`([a-z_.]+)`", said[1]) if said else []
        parents = [folder[: match.start()] for match in re.finditer(r"\.|$", folder)]
        allowed = ["core", *named, *(f"{parent}.{name}" for name in named for parent in parents)]
        for other in sorted(others - {"", *parents}):
            is_own = other.startswith(f"{folder}.")
            if not is_own and not any(f"{other}.".startswith(f"{name}.") for name in allowed):
                problems.append(f"{init}: imports {other}; say so after `May import`, or do without")
    return problems


def copies(trees: dict[Path, ast.Module]) -> list[str]:
    """Places with more equal lines than `MOST_EQUAL_LINES`; imports, overloads and comments do not count."""
    size = MOST_EQUAL_LINES + 1
    seen: dict[tuple[str, ...], str] = {}
    problems = []
    for file, tree in trees.items():
        lines = code_lines(file, tree)
        for start in range(len(lines) - size + 1):
            place = f"{file}:{lines[start][0]}"
            first = seen.setdefault(tuple(text for _, text in lines[start : start + size]), place)
            if first != place:
                problems.append(f"{place}: {size} lines equal those of {first}; one place is enough")
    return problems


def code_lines(file: Path, tree: ast.Module) -> list[tuple[int, str]]:
    left_out: set[int] = set()
    for node in ast.walk(tree):
        is_overload = isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list)
        if is_overload or isinstance(node, (ast.Import, ast.ImportFrom)):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    texts = enumerate(map(str.strip, file.read_text(encoding="utf-8").splitlines()), start=1)
    return [(number, text) for number, text in texts if text and text[0] != "#" and number not in left_out]


def typed_reading(trees: dict[Path, ast.Module]) -> list[str]:
    """Calls by which msgspec meets a type: two threads that do so at once crash, so one module makes them all."""
    problems = []
    for file, tree in trees.items():
        if file.match("core/guards/decoding.py"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("msgspec."):
                last = ast.unparse(node.func).rpartition(".")[2]
                is_typed = last == "decode" and any(keyword.arg == "type" for keyword in node.keywords)
                if last in ("convert", "Decoder") or is_typed:
                    problems.append(f"{file}:{node.lineno}: {ast.unparse(node.func)}: use core.guards.decoding")
    return problems


def unexplained(trees: dict[Path, ast.Module]) -> list[str]:
    """Times and limits of a module that do not say why they have that value: beside it, above it or below it."""
    problems = []
    for file, tree in trees.items():
        lines = file.read_text(encoding="utf-8").splitlines()
        for node, following in zip(tree.body, [*tree.body[1:], None]):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not is_limit(node):
                continue
            has_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            is_commented = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
            if not has_text and not is_commented:
                problems.append(f"{file}:{node.lineno}: say why this time or limit has that value")
    return problems


def is_limit(node: ast.Assign | ast.AnnAssign) -> bool:
    """Whether only numbers are assigned, to a name of a time or a limit."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    parts = list(ast.walk(node.value)) if node.value is not None else []
    is_number = parts and all(
        isinstance(part.value, (int, float)) if isinstance(part, ast.Constant) else isinstance(part, _NUMERIC)
        for part in parts
    )
    return bool(is_number) and any(
        name.isupper() and LIMITS.search(name) and not UNITS.fullmatch(name) for name in names
    )


def main() -> int:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(source.rglob("*.py"))}
    problems = [*class_names(trees), *folders(source), *introductions(trees), *copies(trees), *typed_reading(trees)]
    problems += unexplained(trees)
    tools = {file: ast.parse(file.read_text(encoding="utf-8")) for folder in TOOLS for file in folder.rglob("*.py")}
    problems += permissions(trees, source) + lengths([*trees, *sorted(TESTS.rglob("*.py"))])
    problems += vague_names({**trees, **tools})
    print("\n".join(problems) if trees else f"no files in {source}")
    return int(bool(problems) or not trees)


if __name__ == "__main__":
    sys.exit(main())
