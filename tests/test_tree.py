"""The source tree: the rules that scripts/house.py checks, and that every decision has its test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def problems(source: Path) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "house.py"), str(source)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small tree that keeps all rules."""
    write(tmp_path, "__init__.py", '"""Boats. No cars."""\n')
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)


def test_a_tree_that_keeps_the_rules_has_no_problems(source: Path) -> None:
    write(source, "rowing.py", "class Oar: ...\nclass _Part: ...\n")
    write(source, "sailing.py", "class Mast: ...\nclass _Part: ...\n")
    assert problems(source).strip() == ""


def test_a_class_name_is_used_once(source: Path) -> None:
    write(source, "rowing.py", "class Boat: ...\n")
    write(source, "sailing.py", "\nclass Boat: ...\n")
    assert "sailing.py:2: class Boat is defined in" in problems(source)


def test_a_folder_holds_a_dozen_modules(source: Path) -> None:
    write(source, "boats/__init__.py", '"""Boats. No cars."""\n')
    for number in range(13):
        write(source, f"boats/boat{number}.py", "")
    assert problems(source).strip() == ""
    write(source, "boats/boat13.py", "")
    assert problems(source).splitlines() == [f"{source}/boats: 14 modules; a folder holds at most 13"]


@pytest.mark.parametrize(
    "text", ["", '"""Boats."""', '"""Boats. No cars.' + "\n" * 12 + '."""'], ids=["none", "one", "long"]
)
def test_a_folder_says_what_belongs_there(source: Path, text: str) -> None:
    write(source, "boats/__init__.py", text + "\n")
    assert "boats/__init__.py: its docstring says" in problems(source)


def test_a_folder_says_what_it_may_import(source: Path) -> None:
    for folder in ("core", "boats", "sea", "boats.oars", "boats.sails"):
        write(source, f"{folder.replace('.', '/')}/__init__.py", '"""Boats. No cars. May\nimport `sea`, `sails`."""\n')
    imports = "from longboat import sea\nfrom longboat.core import x\nfrom longboat.boats import sails\n"
    write(source, "boats/oars/rowing.py", imports)
    assert problems(source).strip() == ""
    write(source, "sea/water.py", "def f():\n    import longboat.boats.sails\n    from longboat import boats\n")
    assert problems(source).splitlines() == [
        f"{source}/sea/__init__.py: imports boats; say so after `May import`, or do without",
        f"{source}/sea/__init__.py: imports boats.sails; say so after `May import`, or do without",
    ]


@pytest.mark.parametrize(
    ("text", "is_explained"),
    [
        ("WAIT_S = 5.0\n", False),
        ("WAIT_S: float = 2 * 5.0\n\nOTHER = 1\n", False),
        ("MOST_BOATS, PORT = 4, 80\n", False),
        ("WAIT_S = 5.0  # a tide takes longer\n", True),
        ("# A tide takes longer.\nWAIT_S = 5.0\n", True),
        ('WAIT_S = 5.0\n"""A tide takes longer."""\n', True),
        ("HOUR_S = 3600.0\nPORT = 80\nMAX_LABEL = 'max'\nTWICE_S = 2 * HOUR_S\n", True),
    ],
)
def test_a_time_or_limit_says_why(source: Path, text: str, is_explained: bool) -> None:
    write(source, "rowing.py", text)
    expected = "" if is_explained else f"{source}/rowing.py:1: say why this time or limit has that value"
    assert problems(source).strip() == expected


def test_locals_are_called_by_what_they_hold(source: Path) -> None:
    write(source, "rowing.py", "class Oar:\n    what = 1\n\ndef row(told):\n    found = told\n    return found\n")
    assert problems(source).splitlines() == [
        f"{source}/rowing.py:4: a local called told; call it by what it holds",
        f"{source}/rowing.py:5: a local called found; call it by what it holds",
    ]


def test_nine_equal_lines_are_a_copy(source: Path) -> None:
    eight = "".join(f"row({number})\n" for number in range(8))
    write(source, "rowing.py", "import os\nimport sys\n\n" + eight + "sail()\n")
    write(source, "sailing.py", "import os\nimport sys\n\n" + eight + "row()\n")
    assert problems(source).strip() == ""
    write(source, "sailing.py", "# the same\n\n" + eight + "\nsail()\n")
    assert "sailing.py:3: 9 lines equal those of" in problems(source)


SOURCE = ROOT / "src" / "longboat"
# Decisions that are tested through the one that uses them: they have no other user, or give only a part of its answer.
TESTED_BY = {
    "autoscaler/decide/": "test_decide.py",  # tables of clusters and the whole plan for each
    "autoscaler/model/": "test_decide.py",
    "autoscaler/observe/": "test_from_objects.py",
    "autoscaler/purchase/": "test_optimize.py",
    "autoscaler/scale_down/": "test_decide.py",
    "autoscaler/scale_up/": "test_decide.py",
    "bundles/trees": "test_extraction.py",
    "clusters/cloud/aws/templates/network_template": "test_template.py",
    "clusters/cloud/aws/templates/pool_template": "test_template.py",
    "clusters/cloud/azure/autoscaler_template": "test_permissions.py",
    "clusters/fields/": "test_cluster_file.py",
    "clusters/observe/": "test_problems.py",
    "clusters/plan/": "test_host_plan.py",
    "comparison/page": "test_differences.py",
    "engines/kubernetes/explain/unschedulable": "test_pending.py",
    "engines/kubernetes/gate/reasons": "test_decide.py",
    "engines/kubernetes/reconcile/survivors": "test_node_loss.py",
    "engines/kubernetes/submit/capacity": "test_preflight.py",
    "engines/kubernetes/submit/facts/": "test_cluster_facts.py",
    "engines/kubernetes/submit/quotas": "test_preflight.py",
    "engines/shared/advice": "test_explain.py",
    "engines/shared/explanations": "test_explain.py",
    "engines/shared/run_summary": "test_status.py",
    "fitting/earliest_start": "test_backfill.py",
    "fitting/search": "test_packing.py",
    "launcher/node/environment": "test_node_launcher.py",
    "multicluster/failover_steps": "test_failover.py",
    "serving/kubernetes/status": "test_manifests.py",
    "specs/assembly": "test_read.py",
    "specs/fields/rules": "test_read_mistakes.py",
    "sweeps/kubernetes/sweep_objects": "test_trial_runs.py",
    "sweeps/report": "test_decide.py",
}


def decisions() -> list[str]:
    """Modules of more than 60 lines whose docstring says that they are pure: nothing but decisions is in them."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        if text.count("\n") > 60 and re.search(r"\bPure\b", ast.get_docstring(ast.parse(text)) or ""):
            found.append(str(file.relative_to(SOURCE).with_suffix("")))
    return found


def test_every_decision_has_a_test_of_its_name() -> None:
    assert len(decisions()) > 40
    without = []
    for module in decisions():
        folder, _, name = module.rpartition("/")
        has_own = any((ROOT / "tests" / folder).rglob(f"test_{name}.py"))
        if not has_own and module not in TESTED_BY and f"{folder}/" not in TESTED_BY:
            without.append(module)
    assert not without, "write test_NAME.py, or say in TESTED_BY which test decides on them"


def test_tests_of_decisions_exist() -> None:
    modules = decisions()
    for module, test in TESTED_BY.items():
        assert any((ROOT / "tests" / module.split("/")[0]).rglob(test)), test
        assert any(each == module or each.startswith(module) for each in modules), f"{module} is no decision any more"


def test_folders_of_tests_are_those_of_the_source() -> None:
    packages = {entry.name for entry in SOURCE.iterdir() if entry.is_dir()}
    for folder in (ROOT / "tests").rglob("*"):
        inside = folder.relative_to(ROOT / "tests")
        if inside.parts[0] in packages and any(folder.glob("test_*.py")) and str(inside) not in FLOWS:
            assert (SOURCE / inside).is_dir(), f"tests/{inside} mirrors no folder of src/longboat"


# Tests of whole flows, with what they share.
FLOWS = {"engines/kubernetes/faults"}
