"""Runs on a machine with GPUs: in a mount namespace whose /dev has stand-ins for two of them, as root and as a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local.nvml_library import build_nvml

NOBODY = "65534"
SOURCES = Path(__file__).parents[3] / "src"
MACHINE = """
mount --make-rprivate /
mkdir "$1/dev"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
for name in null zero full random urandom tty; do touch "$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"; done
for name in shm pts; do mkdir "$1/dev/$name"; mount --rbind "/dev/$name" "$1/dev/$name"; done
ln -s /proc/self/fd "$1/dev/fd"
for name in nvidiactl nvidia-uvm nvidia0 nvidia1; do mknod -m 666 "$1/dev/$name" c 1 3; done
mount --move "$1/dev" /dev
shift
exec "$@"
"""
"""The device files are clones of /dev/null: they can be opened by everybody."""
RUNS = '''
import json, sys
from pathlib import Path
from longboat.core.jobs import Gpus, Job, Resources, Role
from longboat.doctor.checks.machine import CHECKS
from longboat.doctor.examination import judge
from longboat.doctor.facts import MACHINE, Seen
from longboat.doctor.observe.machine import machine_facts
from longboat.engines.shared.home import Home
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.settings import LocalSettings
from longboat.core.runs import LogQuery

LOOK = """for n in 0 1 ctl -uvm; do (: < /dev/nvidia$n) 2>/dev/null && echo $n; done; echo "$CUDA_VISIBLE_DEVICES" """
engine = LocalEngine(settings=LocalSettings(containers="off"))


def submit(name, *counts, run=LOOK):
    roles = [Role(name=f"r{n}", run=run, resources=Resources(gpus=Gpus(count=count))) for n, count in enumerate(counts)]
    job = Job(name=name, roles=tuple(roles), ends=tuple(role.name for role in roles))
    engine.submit(Submission(job=job, base=sys.argv[1], run_id=name))


def seen(name, *counts):
    submit(name, *counts)
    assert engine.wait(name).exit_code == 0, engine.status(name)
    lines = list(engine.logs(name, LogQuery()))
    return [[line.data.decode().rstrip("\\n") for line in lines if line.node == f"r{n}-0"] for n in range(len(counts))]


known = Seen({MACHINE: machine_facts(Home(), {})})
told = {
    "one each": seen("each", 1, 1),
    "one and none": seen("some", 1, 0),
    "doctor": [[check.status, check.detail] for check in judge(CHECKS[8:10], known)],
}
submit("long", 1, run="trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done")
assert any(line.data == b"up\\n" for line in engine.logs("long", LogQuery(follow=True)))
assert engine.exec("long", ["sh", "-c", f"({LOOK}) > exec.txt"]) == 0
engine.copy_from("long", "exec.txt", Path(sys.argv[1]) / "exec.txt")
told["exec"] = open(sys.argv[1] + "/exec.txt").read().split()
engine.stop("long")
told["stopped"] = [engine.wait("long").phase, engine.status("long").exit_code]
print(json.dumps(told))
'''


@pytest.fixture(params=["root", "user"])
def command(request: pytest.FixtureRequest) -> Iterator[tuple[list[str], dict[str, str]]]:
    """What runs a Python script on that machine, and its variables."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make device files")
    python, user = [sys.executable], []
    if request.param == "user":
        python, user = ["/usr/bin/python3"], ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    with tempfile.TemporaryDirectory() as folder:  # where the user may go, and with paths short enough for sockets
        root = Path(folder)
        os.chmod(root, 0o755)
        (root / "work").mkdir(mode=0o777)
        os.chmod(root / "work", 0o777)
        build_nvml(root)
        (root / "runs.py").write_text(RUNS)
        kept = {name: os.environ[name] for name in os.environ if not name.startswith(("LONGBOAT_", "PYTHON", "HOME"))}
        variables = {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(SOURCES), sysconfig.get_path("platlib")]),
            "LD_LIBRARY_PATH": folder,
            "LONGBOAT_HOME": f"{folder}/work/home",
            "LONGBOAT_SLOTS": f"{folder}/work/slots",
            "HOME": f"{folder}/work",
            "TMPDIR": "/tmp",
        }
        try:
            looked = subprocess.run([*user, *python, "-c", "import msgspec"], env=variables, check=False)
        except OSError:
            looked = None
        if looked is None or looked.returncode:
            pytest.skip("another user cannot run this Python")
        yield ["unshare", "--mount", "sh", "-euc", MACHINE, "sh", folder, *user, *python], {**variables, "AT": folder}


def test_a_run_opens_the_device_files_of_its_own_gpus_only(command: tuple[list[str], dict[str, str]]) -> None:
    start, variables = command
    at = variables["AT"]
    done = subprocess.run(
        [*start, f"{at}/runs.py", f"{at}/work"], env=variables, cwd=at, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    drivers = ["ctl", "-uvm"]
    assert told["one each"] == [["0", "1", *drivers, "GPU-0"], ["0", "1", *drivers, "GPU-1"]]
    assert told["one and none"] == [["1", *drivers, "GPU-0"], [*drivers, ""]]  # its device file is the second
    assert told["exec"] == ["1", *drivers, "GPU-0"]
    assert told["doctor"] == [
        ["ok", "2 (0: NVIDIA H200, 1: NVIDIA H200)"],
        ["ok", "enforced: a run can open the device files of its own GPUs only"],
    ]
    assert told["stopped"] == ["stopped", 3]
