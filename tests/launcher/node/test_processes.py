"""Finding and measuring processes."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from longboat.launcher.node import processes


@pytest.fixture
def process_tree() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A shell with a child and a grandchild, all with a mark of their own in the environment."""
    mark = f"LONGBOAT_TEST_MARK={uuid.uuid4().hex}"
    process = subprocess.Popen(
        ["sh", "-c", "sh -c 'sleep 1000 & echo up; wait' & wait"],
        env={**os.environ, **dict([mark.split("=")])},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process, mark
    os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


def test_the_tree_of_a_process_both_ways(process_tree: tuple[subprocess.Popen[str], str]) -> None:
    process, _ = process_tree
    found = processes.tree(process.pid)
    assert found[0] == process.pid
    assert len(found) == 3
    pairs = [[name, *processes.stat_fields(int(name))[1:2]] for name in os.listdir("/proc") if name.isdigit()]
    assert processes._tree_by_parents(process.pid, pairs) == found
    assert processes.tree(2**22 + 1) == [2**22 + 1]


def test_carriers_of_a_variable(process_tree: tuple[subprocess.Popen[str], str]) -> None:
    process, mark = process_tree
    assert sorted(processes.carriers([mark.encode()])) == sorted(processes.tree(process.pid))
    assert processes.carriers([mark.encode(), b"LONGBOAT_TEST_OTHER=1"]) == []


def test_start_ticks_tell_one_process_from_another(process_tree: tuple[subprocess.Popen[str], str]) -> None:
    process, _ = process_tree
    own, other = processes.start_ticks(os.getpid()), processes.start_ticks(process.pid)
    assert own is not None and other is not None and own < other
    assert processes.start_ticks(2**22 + 1) is None


def test_memory() -> None:
    own = [os.getpid()]
    assert 1 << 20 < processes.pss(own) <= processes.rss(own) * 2
    assert processes.rss([2**22 + 1]) == 0
    assert processes.oom_kills() >= 0


def test_python_is_recognised(process_tree: tuple[subprocess.Popen[str], str]) -> None:
    process, _ = process_tree
    assert processes.is_python(os.getpid())
    assert not processes.is_python(process.pid)


def test_programs_are_found_like_a_shell_finds_them() -> None:
    folder, name = os.path.split(sys.executable)
    assert processes.find_program(name, "/nowhere:" + folder) == sys.executable
    assert processes.find_program(sys.executable, "") == sys.executable
    with pytest.raises(processes.StartError, match="is a folder"):
        processes.find_program(folder, "")


def test_orphans_come_to_a_subreaper() -> None:
    code = (
        "import os, time\n"
        "from longboat.launcher.node.processes import become_subreaper\n"
        "print(become_subreaper(), flush=True)\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(0.1)\n"
        "    os._exit(0)\n"
        "os.wait(); print(os.wait()[0] > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    code = """
import resource
from longboat.launcher.node.processes import MOST_OPEN_FILES, raise_open_files
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
raise_open_files()
soft, still = resource.getrlimit(resource.RLIMIT_NOFILE)
most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
assert (soft, still) == (most, hard)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
