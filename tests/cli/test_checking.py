"""Commands about job files and the machine: check, init, import, schema, doctor, secret."""

from __future__ import annotations

import json

from longboat.core.errors import JobError
from tests.cli.conftest import Longboat

JOB = "name: digits\nrun: python train.py\nnodes: 2\nprocs: 2\n"
SKY = "name: sky\nnum_nodes: 2\nresources:\n  accelerators: A100:8\n  cloud: aws\nrun: python train.py\n"


def test_check_shows_the_job_its_layout_and_its_environment(longboat) -> None:
    (longboat.folder / "job.yaml").write_text(JOB)
    done = longboat("check", "job.yaml")
    assert "name: digits\n" in done.out and "# the layout: 4 ranks\n" in done.out
    assert "WORLD_SIZE" not in done.out
    wide = longboat("check", "job.yaml", "-o", "wide").out
    assert "# worker-1/3\n" in wide and "\nRANK=3\n" in wide
    record = json.loads(longboat("check", "job.yaml", "-o", "json").out)
    assert record["layout"]["world_size"] == 4
    assert record["layout"]["nodes"][1]["ranks"][0]["env"]["RANK"] == "2"


def test_check_shows_the_job_even_when_it_cannot_run_here(longboat) -> None:
    (longboat.folder / "job.yaml").write_text(f"{JOB}gpus: 8\n")
    longboat.environment["LONGBOAT_GPUS"] = ""
    done = longboat("check", "job.yaml")
    assert "gpus: 8\n" in done.out
    assert "this machine can never run this job" in done.err
    assert longboat("run", "job.yaml", code=203).out == ""


def test_check_of_a_sweep_says_that_it_stands_for_many_runs(longboat: Longboat) -> None:
    (longboat.folder / "tune.yaml").write_text(
        "run: python train.py --epochs ${sweep.epochs}\nsweep: {epochs: [1, 2]}\n"
    )
    done = longboat("check", "tune.yaml")
    assert "note: the job has a `sweep`, and this is one run of it: longboat sweep FILE --dry-run" in done.err


def test_check_reports_mistakes_with_their_places(longboat) -> None:
    (longboat.folder / "job.yaml").write_text("name: digits\nrun: python train.py\nnode: 2\n")
    done = longboat("check", "job.yaml", code=201)
    assert done.out == ""
    assert "job.yaml:3:1" in done.err
    assert "no such file" in longboat("check", "missing.yaml", code=202).err


def test_schema_is_json(longboat) -> None:
    assert "nodes" in json.loads(longboat("schema").out)["properties"]


def test_doctor(longboat) -> None:
    done = longboat("doctor", code=None)
    checks = json.loads(longboat("doctor", "-o", "json", code=None).out)
    assert done.code == (205 if any(check["status"] == "broken" for check in checks) else 0)
    assert "python" in [check["name"] for check in checks]
    assert all(check["name"] in done.out for check in checks)


def test_doctor_refuses_what_does_not_fit_together(longboat) -> None:
    for option in ("--bandwidth", "--no-pods", "--fix"):
        assert f"{option} is for a cluster" in longboat("doctor", option, code=201).err
    assert "leave one of them out" in longboat("doctor", "--on", "lab", "--bandwidth", "--no-pods", code=201).err
    assert "leave --on" in longboat("doctor", "--on", "lab", "--cluster", "cluster.yaml", code=201).err
    assert "missing.yaml" in longboat("doctor", "--cluster", "missing.yaml", code=202).err


def test_doctor_writes_an_archive(longboat) -> None:
    import tarfile

    done = longboat("doctor", "--bundle", "report.tar.gz", code=None)
    assert "wrote report.tar.gz" in done.err
    with tarfile.open(longboat.folder / "report.tar.gz") as archive:
        assert "longboat-doctor/machine.json" in archive.getnames()


def test_secrets_never_show_their_values(longboat) -> None:
    assert longboat("secret", "set", "TOKEN", stdin="s3cret\n").out == ""
    assert longboat("secret", "ls", "-o", "name").out == "TOKEN\n"
    assert json.loads(longboat("secret", "ls", "-o", "json").out) == [{"name": "TOKEN"}]
    done = longboat("run", "--secret", "TOKEN", "--", "echo ${#TOKEN}")
    assert done.out == "6\n"
    assert "s3cret" not in longboat("status", "-o", "json").out + done.err
    assert longboat("secret", "rm", "TOKEN").out == "TOKEN\n"
    assert longboat("secret", "rm", "TOKEN", code=202).out == ""
    assert "an empty value" in longboat("secret", "set", "TOKEN", code=201).err


def test_init_writes_a_job_file_that_runs(longboat) -> None:
    done = longboat("init", "train.py")
    assert (done.out, "wrote job.yaml" in done.err) == ("", True)
    assert longboat("run", "-q", "job.yaml").out == "epoch 0\nepoch 1\n"
    assert "job.yaml exists already" in longboat("init", "train.py", code=201).err
    assert longboat("init", "train.py", "-o", "-").out == (longboat.folder / "job.yaml").read_text()
    longboat("init", "--force")
    assert "cannot read missing.py" in longboat("init", "missing.py", "-o", "x.yaml", code=202).err


def test_import_prints_the_job_and_lists_what_it_lost(longboat) -> None:
    (longboat.folder / "sky.yaml").write_text(SKY)
    done = longboat("import", "sky.yaml")
    assert "nodes: 2" in done.out
    assert "note: not translated: " in done.err and "cloud" in done.err
    longboat("import", "sky.yaml", "-o", "job.yaml")
    assert (longboat.folder / "job.yaml").read_text() == done.out
    assert "exists already" in longboat("import", "sky.yaml", "-o", "job.yaml", code=201).err
    assert longboat("import", "-", stdin=SKY).out.splitlines()[-1] == done.out.splitlines()[-1]


def test_a_job_from_stdin_is_called_so_wherever_it_is_wrong(longboat: Longboat) -> None:
    said = longboat("check", "-", stdin="name: j\nnods: 2\n", code=JobError.exit_code).err
    assert "error: stdin:2:1: nods: unknown field" in said and "error: stdin:1:1: the field" in said


def test_a_command_line_that_is_not_utf_8_is_told_as_such(longboat: Longboat) -> None:
    longboat.environment.update(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    said = longboat("check", "--", "echo", "größe", code=JobError.exit_code).err
    assert "run.1: found half a character" in said and "hint: a command line that is not UTF-8" in said
