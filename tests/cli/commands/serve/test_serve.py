"""`longboat serve` on the command line: what is printed where, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from longboat.cli.commands.serve.manage import print_services
from longboat.serving.service_status import ServiceStatus
from tests.cli.conftest import Longboat

TRAIN = "import longboat\nwith longboat.checkpoint(3) as folder: open(folder + '/model', 'w').close()\n"
APP = "import os\nfrom http.server import *\nHTTPServer(('127.0.0.1', int(os.environ['PORT'])), "
APP += "SimpleHTTPRequestHandler).serve_forever()\n"


def test_detached_it_prints_its_name_and_nothing_else(longboat: Longboat, home: Path) -> None:
    (longboat.folder / "train.py").write_text(TRAIN)
    (longboat.folder / "app.py").write_text(APP)
    longboat("run", "-q", "train.py")
    assert longboat("serve", "train", "--name", "svc", "-d", "--wait", "--", "python", "app.py").out == "svc\n"
    try:
        (service,) = json.loads(longboat("serve", "ls", "-o", "json").out)
        assert (service["name"], service["run"], service["step"]) == ("svc", "train", 3)
        assert (service["replicas"], service["ready"], service["phase"]) == (1, 1, "ready")
        assert service["url"].startswith("http://127.0.0.1:")
        assert "svc " in longboat("serve", "ls").out
        taken = longboat("serve", "train", "--port", service["url"].rpartition(":")[2], "--", "x", code=201)
        assert "cannot be listened on" in taken.err and "hint:" in taken.err
        explained = longboat("explain", "svc").out
        assert "the service svc is ready" in explained and f"train:3 is served at {service['url']}" in explained
        bad = longboat("serve", "scale", "svc", "0", code=201)
        assert "1 to 1000" in bad.err
        for host, words in (("0.0.0.0", "svc listens on port"), ("\u00fc" * 70, "cannot be listened on")):
            name = ("--name", "svc") if host == "0.0.0.0" else ()
            wrong = longboat("serve", "train", *name, "--host", host, "--", "x", code=201)
            assert words in wrong.err and "hint:" in wrong.err and "Traceback" not in wrong.err
        with open(home / "services" / "svc" / "supervisor.log", "a") as log:
            log.write("\x1b[2Jcleared\n")
        events = longboat("serve", "logs", "svc", "--events").out
        assert "cleared" in events and "\x1b" not in events
        assert "no canary" in longboat("serve", "promote", "svc", code=201).err
    finally:
        assert longboat("serve", "stop", "svc").out == "svc\n"
    assert json.loads(longboat("serve", "ls", "-o", "json").out) == []


def test_bad_input_is_one_message(longboat: Longboat) -> None:
    for arguments, code, words in (
        (("serve", "nobody", "--", "x"), 202, "no run named 'nobody'"),
        (("serve", "train:x", "--", "x"), 201, "'x' is not a step"),
        (("serve", "stop", "nobody"), 202, "no service named 'nobody'"),
        (("serve", "scale", "svc", "many"), 201, "is not a number of replicas"),
        (("serve", "scale", "svc", "4-1"), 201, "'4-1': the second is the most"),
        (("serve", "x", "--wait", "--", "y"), 201, "--wait goes with -d"),
    ):
        done = longboat(*arguments, code=code)
        assert words in done.err and "hint:" in done.err and "Traceback" not in done.err and done.out == ""


def test_the_checkpoint_that_was_promoted_and_a_name_that_begins_like_the_replicas(longboat: Longboat) -> None:
    """A service has the name of its run by default: what is said of the run says what serves it, too."""
    (longboat.folder / "train.py").write_text(TRAIN + TRAIN.replace("3", "4"))
    (longboat.folder / "app.py").write_text(APP)
    longboat("run", "-q", "train.py")
    none = longboat("serve", "train:promoted", "-d", "--", "python", "app.py", code=202)
    assert "no checkpoint of train is promoted" in none.err and "longboat checkpoint promote train:STEP" in none.err
    longboat("checkpoint", "promote", "train:3")
    longboat("serve", "train:promoted", "-d", "--wait", "--", "python", "app.py")
    try:
        assert [each["step"] for each in json.loads(longboat("serve", "ls", "-o", "json").out)] == [3]
        replica = json.loads(longboat("ps", "-o", "json").out)[0]["name"]
        assert replica.startswith("train-r")
        assert "is a replica of a service" in longboat("serve", replica, code=201).err
        explained = longboat("explain", "train").out
        assert explained.startswith("it succeeded") and "train:3 is served at http://" in explained
        longboat("serve", "train:newest", "-d", "--wait")
        assert [each["step"] for each in json.loads(longboat("serve", "ls", "-o", "json").out)] == [4]
        longboat("rm", "train")
        gone = longboat("serve", "train", "-d", code=202)  # never the replica, whose name begins like this
        assert "no run named 'train'" in gone.err
        for again in (("rerun", "train"), ("drill", "train")):
            assert "no run named 'train'" in longboat(*again, code=202).err
            replica = json.loads(longboat("ps", "-o", "json").out)[0]["name"]
            assert "is a replica of a service" in longboat(again[0], replica, code=201).err
    finally:
        longboat("serve", "stop", "train")


def test_a_canary_is_in_the_list_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    alone = ServiceStatus(
        name="a", url="http://a", engine="local", run="a", step=3, version=1, replicas=2, ready=2, phase="ready",
        reason="", created=0.0,
    )  # fmt: skip
    print_services([alone], wide=False)
    assert "CANARY" not in capsys.readouterr().out
    print_services([alone, msgspec.structs.replace(alone, name="b", canary="a:7", weight=25)], wide=False)
    head, first, second = capsys.readouterr().out.splitlines()
    place = head.index("CANARY")
    assert (first[place:].split()[0], second[place:].split()[:2]) == ("-", ["a:7", "25%"])
