"""The journal's shell, run below a folder of the test: what is saved comes back, wherever a script is cut off."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from longboat.clusters.apply.undo import _FORGET, _UNDO
from longboat.clusters.plan.journal_shell import HAS_JOURNAL, JOURNAL, PRELUDE, put, undo
from longboat.clusters.plan.steps import Step
from longboat.clusters.plan.system import journal, swap
from tests.clusters.worlds import bare, cluster


class Machine:
    """A folder that plays the root of a host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = root / "journal"
        (self.journal / "undo").mkdir(parents=True)
        (self.journal / "done").mkdir()

    def run(self, script: str, *, is_cut: bool = False) -> subprocess.CompletedProcess[str]:
        text = (PRELUDE + script).replace(JOURNAL, str(self.journal))
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
        assert is_cut or done.returncode == 0, done.stderr
        return done

    def undo(self) -> str:
        return self.run(_UNDO.replace("command -v systemctl", "false")).stdout

    def entries(self) -> list[str]:
        return sorted(path.name for path in (self.journal / "undo").iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_file_that_was_there_comes_back_with_its_mode(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "etc" / "fstab"
    file.parent.mkdir()
    file.write_text("before\n")
    file.chmod(0o640)
    machine.run(put(str(file), "after\n", 0o600))
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after\n", 0o600)
    machine.undo()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("before\n", 0o640)


def test_a_file_that_was_not_there_goes_with_the_folders_made_for_it(machine: Machine, tmp_path: Path) -> None:
    machine.run(put(str(tmp_path / "etc" / "cni" / "net.d" / "x.conf"), "{}"))
    assert (tmp_path / "etc" / "cni" / "net.d" / "x.conf").read_text() == "{}"
    machine.undo()
    assert not (tmp_path / "etc").exists()


def test_a_folder_with_somebody_elses_file_stays(machine: Machine, tmp_path: Path) -> None:
    machine.run(put(str(tmp_path / "etc" / "cni" / "ours"), "x"))
    (tmp_path / "etc" / "cni" / "theirs").write_text("y")
    machine.undo()
    assert [path.name for path in (tmp_path / "etc" / "cni").iterdir()] == ["theirs"]


def test_what_was_there_first_comes_back_after_several_changes(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("the user's")
    for content in ("one", "two", "three"):
        machine.run(put(str(file), content))
    assert len(machine.entries()) == 1
    machine.undo()
    assert file.read_text() == "the user's"


def test_a_link_comes_back_as_a_link(machine: Machine, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    machine.run(put(str(link), "x"))
    assert not link.is_symlink()
    machine.undo()
    assert link.readlink() == Path("nowhere")


def test_nothing_is_written_where_nothing_differs(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "same"
    file.write_text("x")
    file.chmod(0o644)
    machine.run(put(str(file), "x"))
    assert machine.entries() == []


def test_undo_runs_from_the_newest_to_the_oldest_and_each_once(machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("a", "b", "c", "a"):
        machine.run(undo(name, f"echo {name} >> {log}"))
    machine.undo()
    assert log.read_text().split() == ["c", "b", "a"]
    machine.undo()
    assert log.read_text().split() == ["c", "b", "a"]


def test_more_than_ninety_nine_changes_keep_their_order(machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    machine.run("".join(undo(f"n{number}", f"echo {number} >> {log}") for number in range(12)))
    machine.undo()
    assert log.read_text().split() == [str(number) for number in reversed(range(12))]


def test_a_failed_undo_stops_the_way_back_and_the_next_time_goes_on(machine: Machine, tmp_path: Path) -> None:
    """What is older may take away what it still needs: packages before the data that they use."""
    machine.run(undo("old", f"touch {tmp_path}/old-undone") + undo("bad", f"test -e {tmp_path}/mended"))
    machine.run(undo("new", "true"))
    ended = machine.run(_UNDO.replace("command -v systemctl", "false"), is_cut=True)
    assert ended.returncode == 1
    assert "not undone: bad" in ended.stderr
    assert not (tmp_path / "old-undone").exists()
    assert machine.entries() == ["0001-old", "0002-bad"]
    (tmp_path / "mended").touch()
    machine.undo()
    assert machine.entries() == [] and (tmp_path / "old-undone").exists()


def test_an_undo_that_is_killed_while_its_entry_goes_loses_nothing(machine: Machine, tmp_path: Path) -> None:
    """The copy of the user's file is gone, the script is not: what it restored must not be deleted."""
    file = tmp_path / "fstab"
    file.write_text("the user's")
    machine.run(put(str(file), "ours"))
    (entry,) = (machine.journal / "undo").iterdir()
    machine.run(f"HERE={entry} sh -eu {entry}/run")
    (entry / "saved").unlink()
    assert machine.run(_UNDO, is_cut=True).returncode == 1
    assert file.read_text() == "the user's"


def test_an_entry_that_was_cut_off_while_it_was_written_is_no_entry(machine: Machine, tmp_path: Path) -> None:
    (machine.journal / "undo" / ".new").mkdir()
    (machine.journal / "undo" / ".new" / "run").write_text(f"touch {tmp_path}/wrong")
    machine.run(undo("next", f"touch {tmp_path}/right"))
    machine.undo()
    assert (tmp_path / "right").exists() and not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("lines", range(2, 30))
def test_wherever_it_is_cut_off_the_file_is_whole_and_comes_back(machine: Machine, tmp_path: Path, lines: int) -> None:
    """A script that is killed is one of which only the first commands were run."""
    file = tmp_path / "etc" / "file"
    file.parent.mkdir()
    file.write_text("before")
    body = put(str(file), "after") + undo("more", f"rm -f {tmp_path}/more") + f"touch {tmp_path}/more\n"
    count = f"count=0; trap 'count=$((count + 1)); [ $count -lt {lines * 2} ] || kill -9 $$' DEBUG\n"
    text = (PRELUDE.replace("set -eu", f"set -eu\n{count}") + body).replace(JOURNAL, str(machine.journal))
    subprocess.run(["bash", "-T", "-c", text], capture_output=True, check=False)
    assert file.read_text() in ("before", "after")
    machine.undo()
    assert file.read_text() == "before"
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_step_that_waited_for_a_way_back_changes_nothing(
    machine: Machine, tmp_path: Path, is_made_anew: bool
) -> None:
    """`down` takes the journal away last, while it holds its lock; an `up` of another laptop waits for that."""
    text = (PRELUDE + undo("late", "true") + f"touch {tmp_path}/changed\n").replace(JOURNAL, str(machine.journal))
    with open(machine.journal / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = subprocess.Popen(["sh", "-c", text], stderr=subprocess.PIPE, text=True)
        opened = Path(f"/proc/{waiting.pid}/fd/9")
        while not opened.exists() and waiting.poll() is None:
            pass
        shutil.rmtree(machine.journal)
        if is_made_anew:
            machine.journal.mkdir()
            (machine.journal / "lock").touch()
    _, said = waiting.communicate(timeout=30)
    assert (waiting.returncode, said) == (1, "error: this host was taken down meanwhile\n")
    assert not (tmp_path / "changed").exists() and not (machine.journal / "undo").exists()


def test_no_step_but_the_first_makes_a_journal(machine: Machine, tmp_path: Path) -> None:
    shutil.rmtree(machine.journal)
    ended = machine.run(HAS_JOURNAL + undo("late", "true") + f"touch {tmp_path}/changed\n", is_cut=True)
    assert (ended.returncode, "has no journal" in ended.stderr) == (1, True)
    assert not machine.journal.exists() and not (tmp_path / "changed").exists()


def test_a_journal_that_was_half_removed_is_still_found_and_does_not_keep_another_cluster_out(
    machine: Machine,
) -> None:
    """The id of the cluster that went, without its name, was taken for one of another cluster."""
    for name in ("cluster", "id", "before", "touched"):
        (machine.journal / name).write_text("lab\n")
    left = []
    for number, line in enumerate(cuts := [line for line in _FORGET.splitlines() if line.startswith("rm ")]):
        machine.run(_FORGET.replace(line, "exit 9"), is_cut=True)
        left.append(sorted(path.name for path in machine.journal.iterdir()))
        assert ("cluster" in left[-1]) is (number == 0) and "id" not in left[-1]
    assert len(cuts) == 2
    machine.run(_FORGET)
    assert not machine.journal.exists()


def test_a_journal_with_something_to_undo_stays(machine: Machine) -> None:
    machine.run(undo("swap", "true"))
    assert machine.run(_FORGET, is_cut=True).returncode == 1
    assert machine.entries() == ["0001-swap"]


SWAP_PROGRAMS = {
    # Names, and units with their masks, are lines of files.
    "swapon": 'grep -qxF "$1" DEVICES || exit 255\n! grep -qxF "$1" SWAPS || exit 255\necho "$1" >> SWAPS',
    "swapoff": ": > SWAPS",
    "systemd-escape": 'printf "%s.swap\\n" "$(printf %s "${3#/}" | tr / -)"',
    "systemctl": """case "$*" in
list-units*) sed 's/.*/& loaded active active Swap/' UNITS ;;
'-q mask -- own.swap') exit 1 ;;
'-q mask'*) echo "$4" >> MASKED ;;
'-q unmask'*) grep -vxF "$4" MASKED > MASKED.new; mv MASKED.new MASKED ;;
start*) ! grep -qxF "$2" MASKED && printf '/dev/zram0\\n' | tee -a DEVICES >> SWAPS ;;
esac""",
}


class SwappingMachine(Machine):
    """A machine that pages to a partition and to compressed memory; programs of the host write down what is so."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.swaps, self.devices, self.masked = root / "swaps", root / "devices", root / "masked"
        self.swaps.write_text("/dev/sda2\n/dev/zram0\n")
        self.devices.write_text("/dev/sda2\n/dev/zram0\n")
        self.masked.write_text("")
        (root / "units").write_text("dev-disk-by\\x2duuid-1.swap\ndev-zram0.swap\nown.swap\n")
        (root / "bin").mkdir()
        for name, text in SWAP_PROGRAMS.items():
            for word in ("SWAPS", "DEVICES", "UNITS", "MASKED"):
                text = text.replace(word, str(root / word.lower()))
            (root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (root / "bin" / name).chmod(0o755)
        step = swap(cluster(), cluster().hosts[0], bare("cp-0", swaps=("/dev/sda2", "/dev/zram0")))
        assert isinstance(step, Step)
        self.step = step.script

    def run(self, script: str, *, is_cut: bool = False) -> subprocess.CompletedProcess[str]:
        here = script.replace("/proc/swaps", str(self.swaps)).replace("/etc/fstab", str(self.root / "fstab"))
        return super().run(f"PATH={self.root / 'bin'}:$PATH\n{here}", is_cut=is_cut)

    def boot(self) -> None:
        """Compressed memory is made by its unit; what is not masked is switched on."""
        self.devices.write_text("/dev/sda2\n")
        self.swaps.write_text("")


def test_swap_that_no_table_names_stays_off_after_a_boot_and_comes_back_with_down(tmp_path: Path) -> None:
    machine = SwappingMachine(tmp_path)
    machine.run(machine.step)
    assert machine.swaps.read_text() == ""
    assert machine.masked.read_text().split() == ["dev-disk-by\\x2duuid-1.swap", "dev-zram0.swap"]
    machine.run(machine.step)  # once more: what is off and masked by then is not forgotten
    machine.boot()
    machine.undo()
    assert machine.masked.read_text() == ""
    assert machine.swaps.read_text().split() == ["/dev/sda2", "/dev/zram0"]


def test_swap_that_was_not_yet_off_when_the_script_was_cut_is_no_mistake_of_the_way_back(tmp_path: Path) -> None:
    machine = SwappingMachine(tmp_path)
    machine.run(machine.step.replace("swapoff -a", "exit 9"), is_cut=True)
    machine.undo()
    assert machine.swaps.read_text().split() == ["/dev/sda2", "/dev/zram0"] and machine.masked.read_text() == ""


@pytest.mark.parametrize(("files", "is_refused"), [({"id": "0a"}, False), ({"id": "0a", "cluster": "lab"}, True)])
def test_an_id_counts_with_the_name_of_its_cluster_only(
    machine: Machine, files: dict[str, str], is_refused: bool
) -> None:
    """An `up` from elsewhere was cut off before it had begun: nothing of it is there."""
    spec = cluster(id="0b0b0b0b")
    step = journal(spec, spec.hosts[0], bare("cp-0"))
    assert step is not None
    for name, text in files.items():
        (machine.journal / name).write_text(f"{text}\n")
    (machine.journal / "before").write_text("")  # what the host is like takes seconds to read
    done = machine.run(step.script, is_cut=True)
    assert (done.returncode, "part of another cluster called lab" in done.stderr) == (int(is_refused), is_refused)
    assert (machine.journal / "id").read_text() == ("0a\n" if is_refused else "0b0b0b0b\n")
