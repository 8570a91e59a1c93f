"""`longboat compare`: two runs of changed code, and a folder against the run that was made of it."""

from __future__ import annotations

import json
import venv

from tests.cli.conftest import Longboat

TRAIN = """
import longboat

for step in range(1, 4):
    longboat.step(step, loss=longboat.params()["lr"] * step)
# VERSION
"""


def test_two_runs_and_a_folder(longboat: Longboat) -> None:
    script = longboat.folder / "train.py"
    script.write_text(TRAIN)
    longboat("run", "-q", "--id", "one", "--set", "params.lr=0.5", "--label", "team=x", "train.py")
    assert longboat("compare", "one", ".").out == ". against one: the same code\n"
    script.write_text(TRAIN.replace("VERSION", "better"))
    assert "+# better" in longboat("compare", "one", ".").out
    assert json.loads(longboat("compare", "one", ".", "-o", "json").out)["changed"] == ["train.py"]
    assert "no svg of a run and a folder" in longboat("compare", "one", ".", "-o", "svg", code=201).err
    (longboat.folder / "new.bin").write_bytes(b"\xff\x00")
    longboat("run", "-q", "--id", "two", "--set", "params.lr=0.25", "--label", "team=x", "train.py")

    seen = json.loads(longboat("compare", "one", "two", "-o", "json").out)
    assert seen["differing"] == {"params.lr": [0.5, 0.25]}
    assert seen["metrics"][0]["step"] == 3 and seen["metrics"][0]["at_step"] == [1.5, 0.75]
    (change,) = seen["code"]
    assert (change["added"], change["changed"], change["removed"]) == (["new.bin"], ["train.py"], [])
    assert "-# VERSION\n+# better" in change["diff"] and "new.bin: not compared" in change["diff"]

    table = longboat("compare", "-l", "team=x").out
    assert "loss at step 3" in table and "+# better" in table and "two against one: changed train.py" in table
    assert longboat("compare", "one", "two", "-o", "csv").out.startswith(",one,two\n")
    page = longboat("compare", "one", "two", "-o", "html").out
    assert page.startswith("<!doctype html>") and "<td>exit code</td>" in page and "<td>exit_code" not in page
    assert '<span class="minus"># VERSION</span>' not in page and '<span class="minus">-# VERSION</span>' in page
    assert longboat("compare", "one", "two", "-o", "svg").out.startswith("<svg")
    assert "expected 2 to 20" in longboat("compare", "one", code=201).err
    assert "name the runs to compare" in longboat("compare", code=201).err
    assert "do not go together" in longboat("compare", "--sweep", "s", "-l", "team=x", code=201).err
    curves = table.split("loss of ")
    scales = [[line.split("\u2524")[0] for line in text.splitlines() if "\u2524" in line] for text in curves[1:]]
    assert len(scales) == 2 and scales[0] == scales[1] != []


def test_a_long_diff_is_cut_and_says_how_to_see_it(longboat: Longboat) -> None:
    script = longboat.folder / "train.py"
    script.write_text("print(1)\n")
    longboat("run", "-q", "--id", "one", "train.py")
    (longboat.folder / "other.txt").write_text("".join(f"line {number}\n" for number in range(300)))
    cut = longboat("compare", "one", ".")
    assert "+line 100\n" in cut.out and "+line 299" not in cut.out
    assert "183 more lines of this diff are not shown\nhint: --full-diff shows all of it" in cut.err
    assert "+line" not in longboat("compare", "--no-diff", "one", ".").out
    (longboat.folder / "more.txt").write_text("".join(f"more {number}\n" for number in range(2500)))
    assert "more than 1880 more lines" in longboat("compare", "one", ".").err
    longboat("run", "-q", "--id", "two", "train.py")
    for other in (".", "two"):
        whole = longboat("compare", "one", other, "--full-diff")
        assert "+line 299\n" in whole.out and "+more 2499\n" in whole.out and "not shown" not in whole.err
    assert "not shown" in longboat("compare", "one", "two").err


def test_packages_are_compared_and_rerun_says_which_have_changed(longboat: Longboat) -> None:
    """Runs in an environment of their own, in which a package is replaced between them."""
    folder = longboat.folder.parent / "env"
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "numpy-2.1.0.dist-info").mkdir()
    (longboat.folder / "train.py").write_text("import longboat\nlongboat.step(1, loss=1.0)\n")
    longboat.environment |= {"PATH": f"{folder}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(folder)}
    longboat("run", "-q", "--id", "one", "train.py")
    (site / "numpy-2.1.0.dist-info").rename(site / "numpy-2.2.0.dist-info")
    (site / "torch-2.5.dist-info").mkdir()
    longboat("run", "-q", "--id", "two", "train.py")
    seen = json.loads(longboat("compare", "one", "two", "-o", "json").out)
    assert seen["packages"] == {"numpy": ["2.1.0", "2.2.0"], "torch": [None, "2.5"]}
    assert "package numpy" in longboat("compare", "one", "two").out
    said = longboat("rerun", "--dry-run", "one").err
    assert "packages have changed: numpy 2.1.0 -> 2.2.0, torch was not there -> 2.5" in said
    assert "packages" not in longboat("rerun", "--dry-run", "two").err
