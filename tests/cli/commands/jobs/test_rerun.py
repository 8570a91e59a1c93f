"""`longboat rerun`: the same job, with the code of then or of now, from the beginning or from a checkpoint."""

from __future__ import annotations

from tests.cli.conftest import Longboat

SAVES = """
import os, sys
folder = os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "step-1")
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, ".complete"), "w").close()
print("VERSION", sys.argv[1], os.environ["TOKEN"], os.path.basename(os.environ.get("LONGBOAT_RESUME_FROM", "")))
"""


def test_the_code_of_then_and_of_now(longboat: Longboat) -> None:
    script = longboat.folder / "train.py"
    script.write_text(SAVES.replace("VERSION", "old"))
    longboat.environment["TOKEN"] = "t0"
    assert longboat("run", "-q", "--secret", "TOKEN", "train.py", "a b").out == "old a b t0 \n"
    script.write_text(SAVES.replace("VERSION", "new"))
    longboat.environment["TOKEN"] = "t1"
    again = longboat("rerun", "train")
    assert again.out == "old a b t1 \n"
    assert "note: secrets are read again: TOKEN" in again.err and "longboat: run train-2" in again.err
    assert longboat("rerun", "-q", "train", "--fresh-code", "--resume").out == "new a b t1 step-1\n"
    del longboat.environment["TOKEN"]
    assert "TOKEN" in longboat("rerun", "train", code=202).err
    assert "goes with --detach" in longboat("rerun", "-o", "json", code=201).err


def test_links_out_of_the_code_lead_where_they_led(longboat: Longboat) -> None:
    """The hash of the code does not cover them: two runs of the same hash may differ in them."""
    code = longboat.folder / "code"
    code.mkdir()
    (code / "train.py").write_text("print(open('data/name').read())")
    for name in ("v1", "v2"):
        (longboat.folder / name).mkdir()
        (longboat.folder / name / "name").write_text(name)
        (code / "data").unlink(missing_ok=True)
        (code / "data").symlink_to(longboat.folder / name)
        ran = longboat("run", "-q", "--workdir", "code", "--name", name, "--", "python", "train.py")
        assert ran.out == f"{name}\n"
    assert longboat("rerun", "-q", "v1").out == "v1\n"
    assert longboat("rerun", "-q", "v1", "--fresh-code").out == "v2\n"
