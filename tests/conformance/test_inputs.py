"""What goes into a run and comes out of it: secrets, data, volumes, artifacts, setup, commands beside the ranks."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import msgspec
import pytest

from longboat.core.errors import NotFound, Refused, UsageError
from longboat.core.runs import LogQuery
from tests.conformance.conftest import Jobs

CANARY = "canary-7f3a91c2e5"


def test_a_secret_reaches_the_ranks_and_no_file(jobs: Jobs, tmp_path: Path) -> None:
    """Nor a log, though the ranks print it."""
    code = """
import os, hashlib
for name in ("FROM_ENV", "RENAMED", "FROM_FILE"):
    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest() + os.environ[name], flush=True)
"""
    (tmp_path / "token").write_text(CANARY + "-file\n")
    environment = {**jobs.place.environment, "FROM_ENV": CANARY + "-env", "OTHER_NAME": CANARY + "-other"}
    secrets = {"FROM_ENV": None, "RENAMED": {"env": "OTHER_NAME"}, "FROM_FILE": {"file": str(tmp_path / "token")}}
    run = jobs.submit(code, secrets=secrets, environment=environment, nodes=2, retries=1)
    assert jobs.place.holding(CANARY.encode()) == []
    assert jobs.wait(run.name).phase == "succeeded", jobs.text(run.name)
    expected = {
        name: hashlib.sha256(f"{CANARY}-{kind}".encode()).hexdigest() + "***"
        for name, kind in (("FROM_ENV", "env"), ("RENAMED", "other"), ("FROM_FILE", "file"))
    }
    said = dict(line.split() for line in jobs.text(run.name, rank=1).splitlines())
    assert said == expected
    assert jobs.place.holding(CANARY.encode()) == []


def archive(folder: Path) -> Path:
    path = folder / "data.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("numbers/one.txt")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"1 2\n"))
    return path


def test_data_is_imported_before_the_ranks_start(jobs: Jobs, tmp_path: Path) -> None:
    path = archive(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    code = "print(open('data/numbers/one.txt').read(), end='')"
    for name in ("first", "second"):
        run = jobs.run(
            code, name=name, data=[{"url": jobs.place.url_of(path), "to": "data", "sha256": digest}], nodes=2
        )
        assert run.phase == "succeeded", run.reason
        assert jobs.text(run.name) == "1 2\n1 2\n"


def test_data_that_is_not_what_it_should_be(jobs: Jobs, tmp_path: Path) -> None:
    data = [{"url": jobs.place.url_of(archive(tmp_path)), "to": "data", "sha256": "0" * 64}]
    run = jobs.run("print('never')", data=data)
    assert (run.phase, run.cause, run.exit_code) == ("failed", "data", 209), run.reason
    assert jobs.text(run.name) == ""
    gone = jobs.run("print('never')", data=[{"url": jobs.place.url_of(tmp_path / "nothing"), "to": "data"}])
    assert (gone.phase, gone.cause) == ("failed", "data"), gone.reason


def test_a_folder_as_a_volume(jobs: Jobs, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "in.txt").write_text("from outside")
    code = """
import os
print(open(os.environ["WHERE"] + "/in.txt").read())
open(os.environ["WHERE"] + "/out-" + os.environ["RANK"], "w").write("from rank")
"""
    run = jobs.run(code, nodes=2, volumes={str(folder): {"path": str(folder)}}, env={"WHERE": str(folder)})
    assert run.phase == "succeeded", run.reason
    assert jobs.text(run.name) == "from outside\n" * 2
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "out-0", "out-1"]


def test_a_folder_inside_the_working_copy(jobs: Jobs, tmp_path: Path) -> None:
    """A volume at a relative place, with data imported into it; every node sees the same folder."""
    folder = tmp_path / "shared"
    folder.mkdir()
    code = """
import os
assert open("inputs/numbers/one.txt").read() == "1 2\\n"
open("inputs/out-" + os.environ["RANK"], "w").write("x")
"""
    data = [{"url": jobs.place.url_of(archive(tmp_path)), "to": "inputs"}]
    run = jobs.run(code, nodes=2, volumes={"inputs": {"path": str(folder)}}, data=data)
    assert run.phase == "succeeded", run.reason + jobs.text(run.name)
    assert {"out-0", "out-1", "numbers"} <= {path.name for path in folder.iterdir()}


def test_scratch_is_empty_at_the_start_and_gone_at_the_end(jobs: Jobs) -> None:
    code = """
import os, sys
assert os.listdir("tmp") == []
open("tmp/file", "w").write("x")
print(os.path.realpath("tmp"))
"""
    run = jobs.run(code, volumes={"tmp": {"scratch": True}})
    assert run.phase == "succeeded", jobs.text(run.name)
    assert not Path(jobs.text(run.name).strip()).exists()


def test_a_volume_that_is_not_there(jobs: Jobs, tmp_path: Path) -> None:
    if jobs.place.is_this_machine:  # what can be seen before the start is refused
        with pytest.raises(Refused, match="there is no folder .*nowhere"):
            jobs.run("print('never')", volumes={"inputs": {"path": str(tmp_path / "nowhere")}})
        return
    run = jobs.run("print('never')", volumes={"inputs": {"path": str(tmp_path / "nowhere")}})
    assert (run.phase, run.exit_code) == ("failed", 209), run.reason
    assert "nowhere" in run.reason and jobs.text(run.name) == ""


def test_the_place_of_a_volume_is_not_code(jobs: Jobs, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "of-the-volume").touch()
    files = {"inputs": "a file of the workdir where the volume goes"}
    run = jobs.run("import os; print(os.listdir('inputs'))", files=files, volumes={"inputs": {"path": str(folder)}})
    assert jobs.text(run.name) == "['of-the-volume']\n", run.reason


def test_artifacts_are_kept(jobs: Jobs, tmp_path: Path) -> None:
    code = """
import os
os.makedirs("out/deep")
open("out/deep/model.bin", "wb").write(bytes(range(256)))
open("notes.txt", "w").write("rank " + os.environ["RANK"])
open("scrap.tmp", "w").write("no")
open(os.path.join(os.environ["LONGBOAT_ARTIFACTS_DIR"], "direct"), "w").write("x")
"""
    run = jobs.run(code, nodes=2, artifacts=["out/**", "*.txt"])
    jobs.engine.copy_from(run.name, "artifacts", tmp_path / "kept")
    kept = sorted(str(path.relative_to(tmp_path / "kept")) for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert kept == ["direct"] + [f"worker-{n}/{name}" for n in range(2) for name in ("notes.txt", "out/deep/model.bin")]
    assert (tmp_path / "kept/worker-1/out/deep/model.bin").read_bytes() == bytes(range(256))
    assert (tmp_path / "kept/worker-1/notes.txt").read_text() == "rank 1"


def test_artifacts_of_a_failed_run_are_kept_too(jobs: Jobs, tmp_path: Path) -> None:
    run = jobs.run("open('x.txt', 'w').write('half'); raise SystemExit(2)", artifacts=["x.txt"])
    jobs.engine.copy_from(run.name, "artifacts/worker-0/x.txt", tmp_path / "x")
    assert (tmp_path / "x").read_text() == "half"


def test_setup_runs_on_every_node_before_the_ranks(jobs: Jobs) -> None:
    run = jobs.run("print(open('made').read(), end='')", setup="echo by setup > made", nodes=2, procs=2)
    assert run.phase == "succeeded", run.reason
    assert [jobs.text(run.name, rank=rank) for rank in range(4)] == ["by setup\n"] * 4


def test_every_node_has_its_own_working_copy(jobs: Jobs) -> None:
    code = """
import os
assert not os.path.exists("mine")
open("mine", "w").write(os.environ["NODE_RANK"])
"""
    run = jobs.run(code, nodes=3)
    assert run.phase == "succeeded", jobs.text(run.name)


def test_commands_beside_the_ranks(jobs: Jobs, tmp_path: Path) -> None:
    code = "import time; open('here', 'w'); print('ready', flush=True); time.sleep(60)"
    run = jobs.submit(code, nodes=2, procs=2, env={"LR": "0.1"})
    jobs.until_said(run.name, "ready", times=4)

    def ask(script: str, **where: object) -> int:
        return jobs.engine.exec(run.name, ["sh", "-c", script], **where)  # type: ignore[arg-type]

    assert ask("exit 7") == 7
    assert ask("kill -9 $$") == 137
    assert ask('test "$LR" = 0.1 -a -e here -a "$LONGBOAT_NODE" = worker-0') == 0
    assert ask('test "$LONGBOAT_NODE" = worker-1', node="worker-1") == 0
    assert ask('test "$RANK" = 3', rank=3) == 0
    with pytest.raises(NotFound):
        ask("true", node="worker-9")
    with pytest.raises(NotFound, match="has no rank 44") as caught:
        ask("true", rank=44)
    assert caught.value.hint == "its ranks are 0 to 3"
    with pytest.raises(NotFound):
        jobs.engine.exec(run.name, ["no-such-program"])


def test_files_in_and_out(jobs: Jobs, tmp_path: Path) -> None:
    run = jobs.submit("import time; open('x', 'w').write('1'); print('ready', flush=True); time.sleep(60)", nodes=2)
    jobs.until_said(run.name, "ready", times=2)
    jobs.engine.copy_from(run.name, "train.py", tmp_path / "copy.py")
    assert (tmp_path / "copy.py").read_text().startswith("import time")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("in")
    jobs.engine.copy_to(run.name, tmp_path / "folder", "there", node="worker-1")
    jobs.engine.copy_from(run.name, "there/file", tmp_path / "back", node="worker-1")
    assert (tmp_path / "back").read_text() == "in"
    with pytest.raises(NotFound):
        jobs.engine.copy_from(run.name, "there/file", tmp_path / "other", node="worker-0")
    for path in ("../../../state.json", "/etc/passwd"):
        with pytest.raises((UsageError, NotFound)):
            jobs.engine.copy_from(run.name, path, tmp_path / "bad")
        with pytest.raises((UsageError, NotFound)):
            jobs.engine.copy_to(run.name, tmp_path / "back", path)
    with pytest.raises(NotFound):
        jobs.engine.copy_to(run.name, tmp_path / "nothing", "x")


def test_a_question_is_seen_and_its_answer_is_read(jobs: Jobs) -> None:
    """What has no newline yet is shown, and the only rank reads the submitter's stdin, to its end."""
    if not jobs.place.passes_stdin:
        pytest.skip("its ranks have an empty stdin")
    code = "import sys\nprint('hello ' + input('name? '))\nprint(repr(sys.stdin.read()))"
    reader, writer = os.pipe()
    run = jobs.engine.submit(msgspec.structs.replace(jobs.submission(code), stdin=reader))
    os.close(reader)
    seen = b""
    for line in jobs.engine.logs(run.name, LogQuery(follow=True, pieces=True)):
        seen += line.data
        if seen == b"name? ":
            os.write(writer, b"longboat\n")
            os.close(writer)
    assert seen == b"name? hello longboat\n''\n"
    assert jobs.wait(run.name).phase == "succeeded"
    assert jobs.text(run.name) == seen.decode()
