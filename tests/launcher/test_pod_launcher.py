"""One pod as a plain process: working copy, volumes, data, home, `python`, log, what is kept, what it says last."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.engines.kubernetes.logs.lines import lines_of_pod
from longboat.launcher.zipapp import write_zipapp
from tests.launcher.nodes import LAUNCHER
from tests.launcher.pods import Pods, checkpoint, code_of, digest
from tests.launcher.test_zipapp import interpreters

Make = Callable[..., Pods]


@pytest.fixture(scope="session")
def zipapp_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "launcher.pyz"
    write_zipapp(str(path))
    return path


def test_the_launcher_fits_into_a_secret(zipapp_file: Path) -> None:
    """Also into the annotation, of 256 KiB at most, in which `kubectl apply` keeps the Secret, in base64."""
    assert zipapp_file.stat().st_size * 4 / 3 < (256 << 10) - 2048


SCRIPT = """
import os, sys
import longboat
longboat.step(4, loss=0.5)
print(os.getcwd() == os.environ["PWD_EXPECTED"], os.environ["OF_ALL"], os.environ["RANK"], os.environ["WORLD"])
print(sorted(os.listdir(".")), os.access("tools/run.sh", os.X_OK), os.access("train.py", os.X_OK))
with longboat.checkpoint(4) as folder:
    open(folder + "/weights", "w").write("w")
sys.stderr.write("no newline")
"""


@pytest.mark.parametrize("python", interpreters())
def test_a_pod_from_its_first_moment_to_its_last(
    make_pods: Make, zipapp_file: Path, python: str, tmp_path: Path
) -> None:
    data = tmp_path / "d.txt"
    data.write_text("data")
    pods = make_pods([python, "train.py"], script=SCRIPT, data=[{"url": data.as_uri(), "to": "in", "unpack": True}])
    assert pods.run(launcher=zipapp_file, python=python, env={"PWD_EXPECTED": str(pods.node(0) / "work")}) == [0]
    lines = pods.log(0, "0.out").splitlines()
    assert lines == ["True 1 0 1", "['in', 'tools', 'train.py'] True False"]
    message = pods.message()
    assert message["v"] == 1 and message["node"] == "worker-0" and message["exit_code"] == 0
    assert message["ranks"] == [[0, 0, None, 4]]
    assert message["checkpoint"] == str(pods.folder / "checkpoints" / "step-4")
    assert message["resumed_from"] is None and message["started"] <= message["ended"]
    assert (pods.node(0) / "work" / "in" / "d.txt").read_text() == "data"


LINE = re.compile(r"(\d+|setup|node)\.(out|err)(~?\^?) (\d+) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (.*)")


def test_what_the_pod_s_log_says(make_pods: Make) -> None:
    script = """
import os, sys, time
for n in range(2000): print("line", n)
os.write(1, b"x" * 300000 + b"\\n\\n")
os.write(2, b"a\\nb\\xff\\rc")
time.sleep(0.3)
print("later", flush=True)
os.write(1, b"end")
"""
    pods = make_pods(script=script, plan={"setup": "echo prepared"})
    assert pods.run() == [0]
    found: dict[str, list[tuple[str, str, str]]] = {}
    for raw in (pods.root(0) / "stdout").read_bytes().decode("utf-8", "replace").split("\n")[:-1]:
        if re.match(r"[0-9]+\.(out|err)\+[0-9]+ ", raw):
            continue  # the beginning of a line that had no end yet; the whole line follows
        match = LINE.fullmatch(raw)
        assert match, raw[:100]
        stem, stream, mark, seq, when, text = match.groups()
        rows = found.setdefault(f"{stem}.{stream}", [])
        assert int(seq) == len(rows)
        rows.append((mark, when, text))
    assert [text for _, _, text in found["0.out"]] == [
        *(f"line {n}" for n in range(2000)),
        "x" * 300000,
        "",
        "later",
        "end",
    ]
    assert [mark for mark, _, _ in found["0.out"]][-2:] == ["", "~"]
    assert [(mark, text) for mark, _, text in found["0.err"]] == [("", "a"), ("~", "b\ufffd\rc")]
    assert [text for _, _, text in found["setup.out"]] == ["prepared"]
    times = [when for _, when, _ in found["0.out"]]
    assert times == sorted(times) and times[-2] > times[0]


def test_the_engine_reads_every_byte_of_the_log(make_pods: Make) -> None:
    """Carriage returns and all: what a rank wrote is what the engine's reader gives."""
    wrote = b"bar 1\rbar 2\r\nplain\n\r\n\r\r\n" + b"y" * 70000 + b"\r\n" + b"z" * 131072 + b"\n" + b"end\r"
    pods = make_pods(script=f"import os\ndata = {wrote!r}\nwhile data: data = data[os.write(1, data):]")
    assert pods.run() == [0]
    seen: dict[str, int] = {}
    lines = list(lines_of_pod(iter([(pods.root(0) / "stdout").read_bytes()]), seen=seen))
    assert b"".join(line.data for line in lines if line.rank == 0 and line.stream == "out") == wrote
    assert seen == {"0.out": 7}


def test_the_launcher_s_own_words_are_counted_too(make_pods: Make) -> None:
    pods = make_pods(script="import time; print('up', flush=True); time.sleep(600)")
    pods.start_all()
    pods.until_said("up")
    pods.processes[0].terminate()
    assert pods.wait() == 208
    match = LINE.fullmatch(pods.stderr().splitlines()[0])
    assert match and match.group(1, 2, 4, 6) == ("node", "err", "0", "this pod is being taken away")


# the code


# volumes


# data


# where the ranks live


def test_only_what_belongs_to_the_run_is_inherited(make_pods: Make) -> None:
    script = """
import os
print(sorted(set(os.environ) & {"TF_CONFIG", "TF_OTHER", "KEPT", "JOB_COMPLETION_INDEX", "LONGBOAT_X"}))
"""
    pods = make_pods(script=script, plan={"unset": ["LONGBOAT_*", "TF_CONFIG"]})
    given = {"TF_CONFIG": "1", "TF_OTHER": "2", "KEPT": "3", "LONGBOAT_X": "4"}
    assert pods.run(env=given) == [0]
    assert pods.log(0, "0.out") == "['KEPT', 'TF_OTHER']\n"


# checkpoints and what is kept


def test_old_checkpoints_go(make_pods: Make) -> None:
    pods = make_pods(script="pass")
    pods.gang["checkpoints"]["keep"] = 2
    for step in (1, 2, 3, 10):
        checkpoint(pods.folder / "checkpoints", step)
    assert pods.run() == [0]
    assert sorted(path.name for path in (pods.folder / "checkpoints").iterdir()) == ["step-10", "step-3"]
    assert pods.message()["checkpoint"].endswith("step-10")


def test_old_checkpoints_go_while_it_runs(make_pods: Make) -> None:
    pods = make_pods(script="import time; print('up', flush=True); time.sleep(600)")
    pods.gang["checkpoints"]["keep"] = 1
    for step in (1, 2):
        checkpoint(pods.folder / "checkpoints", step)
    pods.start_all()
    pods.until(lambda: not (pods.folder / "checkpoints" / "step-1").exists())
    assert pods.processes[0].poll() is None
    assert (pods.folder / "checkpoints" / "step-2").exists()


def test_logs_and_reports_are_kept(make_pods: Make) -> None:
    script = (
        "import os, sys, time; print('said', flush=True); sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(600)"
    )
    pods = make_pods(script=script, roles={"worker": 2}, plan={"attempt": 2, "setup": "echo s"})
    pods.gang["keep"] = str(pods.folder / "kept")
    pods.run()
    kept = pods.folder / "kept" / "2" / "worker-1"
    names = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    logs = {f"logs/{name}{end}" for name in ("1.out", "1.err", "setup.out") for end in ("", ".idx")}
    assert names == {"outcome.json", "rank-1.json"} | logs
    assert (kept / "logs/1.out").read_text() == "said\n"
    assert (kept / "logs/1.out.idx").read_bytes() == (pods.node(1) / "logs/1.out.idx").read_bytes()
    head = pods.folder / "kept" / "2" / "worker-0"
    assert json.loads((head / "verdict.json").read_text())["exit_code"] == 3


def test_artifacts_are_collected(make_pods: Make, tmp_path: Path) -> None:
    script = """
import os
os.makedirs("out/deep")
open("out/deep/model.bin", "wb").write(bytes(range(256)))
open("notes.txt", "w").write("rank " + os.environ["RANK"])
open("scrap.tmp", "w").write("no")
os.symlink("/etc", "out/away")
open(os.path.join(os.environ["LONGBOAT_ARTIFACTS_DIR"], "direct"), "w").write("x")
"""
    patterns = ["out/**", "*.txt", "../*", "/etc/host*"]
    pods = make_pods(script=script, roles={"worker": 2})
    pods.gang["artifacts"]["patterns"] = patterns
    assert pods.run() == [0, 0]
    folder = pods.folder / "artifacts"
    kept = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert kept == ["direct"] + [f"worker-{n}/{name}" for n in range(2) for name in ("notes.txt", "out/deep/model.bin")]
    assert (folder / "worker-1/out/deep/model.bin").read_bytes() == bytes(range(256))


def test_a_storage_that_cannot_be_written_changes_nothing(make_pods: Make) -> None:
    pods = make_pods(script="print('hi')")
    pods.gang["keep"] = "/proc/nothing"
    assert pods.run() == [0]
    assert pods.message()["exit_code"] == 0
    assert "not kept" in pods.stderr()


# what cannot even begin


@pytest.mark.parametrize("what", ["gang", "version", "role", "key", "none", "plan"])
def test_a_gang_file_that_cannot_be_used(make_pods: Make, what: str, tmp_path: Path) -> None:
    pods = make_pods(script="pass")
    if what == "version":
        pods.gang["version"] = 99
    if what == "key":
        del pods.gang["roles"]
    if what == "plan":
        pods.gang["plan"]["attempt"] = [0]
    pods.make(0)
    place = pods.root(0) / "gang" / "gang"
    if what == "gang":
        place.write_bytes(b"not gzip")
    if what == "none":
        place.unlink()
    role = "driver" if what == "role" else "worker"
    message = tmp_path / "message"
    env = {**os.environ, "LONGBOAT_TERMINATION_LOG": str(message)}
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--pod", str(pods.root(0)), role]
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert done.returncode in (200, 205) and b"Traceback" not in done.stderr
    said = json.loads(message.read_text())
    assert (said["exit_code"], said["cause"]) == (done.returncode, "lost") and said["message"]


def test_the_code_of_a_gang_file_is_what_the_engine_writes() -> None:
    code, data = code_of({"a": "b"})
    assert code["entries"][0][:3] == ["a", "file", digest(b"b")] and data[:2] == b"\x1f\x8b"
