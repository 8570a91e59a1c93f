"""No cloud library is loaded by commands that call no cloud."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters.cloud.aws.files import PRIVATE


@pytest.mark.parametrize(
    "command",
    ["cluster check", "cluster render", "cluster permissions cluster.yaml", "cluster --help", "ps", "schema cluster"],
)
def test_no_library(command: str, tmp_path: Path, home: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(PRIVATE)
    code = (
        "import sys\nfrom longboat.cli.main import enter\n"
        f"code = enter({command.split()!r})\n"
        "assert code == 0, code\n"
        "assert not [name for name in sys.modules if name.startswith(('botocore', 'azure.', 'google.auth'))]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
