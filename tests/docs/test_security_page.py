"""Every sentence of docs/security.md that denies something names tests that try it (`tests/security/claims.py`)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.security.claims import CLAIMS

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "security.md"
DENIALS = re.compile(r"\b(cannot|never|no|nobody|nothing|none|nowhere)\b", re.IGNORECASE)
DENIED = "What an attacker reaches"
"""The section whose last column is what cannot be, in every row."""
LIMITS = "Limits"
"""The section that says what is not promised."""


def sentences(paragraph: str) -> list[str]:
    return re.split(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`*])", paragraph)


def claims(page: str) -> list[str]:
    """Sentences and rows that deny something: rows with their cells, a first cell that is empty left out."""
    section, paragraph, denials = "", "", []
    for line in [*page.splitlines(), ""]:
        if paragraph and (not line.strip() or line.startswith(("-", "|", "#"))):
            denials += [each for each in sentences(paragraph) if DENIALS.search(each) and section != LIMITS]
            paragraph = ""
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.startswith("|"):
            cells = [cell for cell in (cell.strip() for cell in line.strip("|").split("|")) if cell]
            is_head = set(line) <= set("|- ") or cells[0] in ("who", "field", "somebody who may")
            if not is_head and (section == DENIED or DENIALS.search(line)):
                denials.append(" | ".join(cells))
        else:
            paragraph = f"{paragraph} {line.removeprefix('- ').strip()}".strip()
    return denials


def functions_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("claim", claims(PAGE.read_text(encoding="utf-8")))
def test_a_denial_has_tests_that_try(claim: str) -> None:
    matching = [beginning for beginning in CLAIMS if claim.startswith(beginning)]
    assert len(matching) == 1, f"tests/security/claims.py: {len(matching)} entries for: {claim}"
    assert CLAIMS[matching[0]], claim


@pytest.mark.parametrize("beginning", CLAIMS)
def test_an_entry_is_about_a_sentence_and_its_tests_are_there(beginning: str) -> None:
    known = claims(PAGE.read_text(encoding="utf-8"))
    assert sum(claim.startswith(beginning) for claim in known) == 1, "the page says that no more"
    for test in CLAIMS[beginning]:
        file, _, name = test.partition("::")
        assert name in functions_of(file), test


def test_what_counts_as_a_denial() -> None:
    page = (
        "# A\nAll is well. It never leads\nout. Fine.\n\n- **Nobody** enters. Yes.\n\n## Limits\nNo promise.\n\n"
        f"## {DENIED}\n| somebody who may | can | cannot |\n|---|---|---|\n| read | look | write |\n| | forge | run |\n"
    )
    assert claims(page) == ["It never leads out.", "**Nobody** enters.", "read | look | write", "forge | run"]
