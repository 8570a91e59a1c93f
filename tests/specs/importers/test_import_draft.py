"""What cannot be said in a job file is listed in it, and no secret is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.specs.importers.registry import import_text
from tests.specs.importers.samples import DSTACK, SKY, load, lost


@pytest.mark.parametrize("text", [SKY, DSTACK])
def test_what_is_lost_stands_in_the_file_as_comments(text: str) -> None:
    imported = import_text(text, file="their.yaml")
    for each in imported.untranslated:
        assert f"# - {each}\n" in imported.text


def test_no_secret_is_copied() -> None:
    text = import_text(SKY, file="their.yaml").text
    assert "hf_abc" not in text and "topsecret" not in text


def test_what_does_not_fit_is_lost_with_the_reason(tmp_path: Path) -> None:
    imported, job = load("run: x\nnum_nodes: 0\nenvs: {A-B: c}\nresources: {cpus: many, memory: 4x}", tmp_path)
    assert lost(imported) == {"num_nodes", "envs.A-B", "resources.cpus", "resources.memory"}
    assert job.nodes == 1
