"""What a reset removes of containerd: only what kubelets made where somebody else was there before. Parts as shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from longboat.clusters.apply.undo import judge
from longboat.clusters.plan import kubeadm
from longboat.clusters.plan.inventory_shell import INVENTORY

PROGRAM, KNOWN, UNKNOWN = "program\t/usr/bin/containerd\n", "containerd\tnamespace k8s.io\n", "containerd\tnot known\n"
# Of pods and of somebody who starts containers in the same namespace by hand.
CTR = r"""#!/bin/sh
case "$*" in
*"containers list -q labels."*) echo pod-1 ;;
*"containers list -q") echo pod-1; echo mine ;;
*"images list -q") echo image ;;
*"tasks kill"*|*"containers delete"*|*"images remove"*|*"namespaces remove"*) echo "$*" >> CALLS ;;
esac
"""


class Root:
    """A folder in place of /, whose programs come first."""

    def __init__(self, folder: Path, before: str) -> None:
        self.folder, self.calls = folder, folder / "calls"
        for name in ("bin", "journal", "run"):
            (folder / name).mkdir()
        (folder / "journal/before").write_text(before)

    def program(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(text.replace("CALLS", str(self.calls)))
        (self.folder / "bin" / name).chmod(0o755)

    def run(self, script: str) -> str:
        for place, name in {"/var/lib/longboat": "journal", "/run/": "run/", "/proc/": "proc/"}.items():
            script = script.replace(place, f"{self.folder}/{name}")
        command = f"PATH={self.folder}/bin:$PATH\n{script}"
        return subprocess.run(["sh", "-eu", "-c", command], capture_output=True, text=True, check=True).stdout

    def called(self) -> str:
        return self.calls.read_text() if self.calls.exists() else ""


@pytest.mark.parametrize(
    ("before", "is_all_ours", "has_images_removed"),
    [
        ("", True, False),  # it goes with its package and its folder
        (PROGRAM, True, True),
        (PROGRAM + KNOWN, False, False),
        (PROGRAM + UNKNOWN, False, False),
    ],
)
def test_what_was_in_a_containerd_before_stays(
    tmp_path: Path, before: str, is_all_ours: bool, has_images_removed: bool
) -> None:
    root = Root(tmp_path, before)
    root.program("ctr", CTR)
    root.run(kubeadm._REMOVE_CONTAINERS)
    calls = root.called()
    assert "tasks kill -s 9 pod-1" in calls and "containers delete pod-1" in calls
    assert ("kill -s 9 mine" in calls, "delete mine" in calls) == (is_all_ours, is_all_ours)
    assert ("images remove" in calls, "namespaces remove" in calls) == (has_images_removed, has_images_removed)


@pytest.mark.parametrize(("before", "killed"), [("", ["10", "11"]), (KNOWN, ["10"])])
def test_only_shims_of_this_machines_own_containerd_are_killed(tmp_path: Path, before: str, killed: list[str]) -> None:
    root = Root(tmp_path, before)
    processes = {
        "1": ("host", ""),
        "10": ("host", "/run/containerd/containerd.sock"),
        "11": ("host", "/run/containerd/containerd.sock"),  # of a container that was started by hand
        "20": ("kind", "/run/containerd/containerd.sock"),
        "30": ("host", "/run/k3s/containerd/containerd.sock"),
    }
    for number, (space, socket) in processes.items():
        process = tmp_path / "proc" / number
        (process / "ns").mkdir(parents=True)
        for name in ("pid", "mnt"):
            (process / "ns" / name).symlink_to(f"{name}:[{space}]")
        socket = socket.replace("/run/", f"{tmp_path}/run/")
        words = ["containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", f"box-{number}", "-address", socket]
        (process / "cmdline").write_text("\0".join(words) + "\0")
    box = tmp_path / "run/containerd/io.containerd.runtime.v2.task/k8s.io/box-10"
    box.mkdir(parents=True)
    (box / "config.json").write_text('{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}')
    root.program("pgrep", "#!/bin/sh\necho 10 11 20 30 40\n")
    note = f'kill() {{ echo "$2" >> {root.calls}; }}\n'  # the shell's own, and no process of this machine
    root.run(note + kubeadm._REMOVE_CONTAINERS.replace("ctr", "no-ctr") + kubeadm._KILL_SHIMS)
    assert root.called().split() == killed


def test_what_pods_leave_mounted_is_unmounted_and_what_others_have_is_not(tmp_path: Path) -> None:
    """Pods that could not be stopped in time, in a containerd that was there before and stays."""
    root = Root(tmp_path, PROGRAM)
    states = f"{tmp_path}/run/containerd/io.containerd.grpc.v1.cri/sandboxes"
    sandbox = f"{states}/{'0a' * 32}"
    (tmp_path / f"run/containerd/io.containerd.grpc.v1.cri/sandboxes/{'0a' * 32}/shm").mkdir(parents=True)
    ours = ["/var/lib/kubelet/pods/x/volume", f"{tmp_path}/run/netns/cni-1", f"{sandbox}/shm"]
    others = ["/var/lib/docker/containers/1/shm", "/run/netns/mine", f"{states}/shm", "/var/lib/kubelet-of-others"]
    others.append(f"/run/k3s{sandbox.removeprefix(f'{tmp_path}/run')}/shm")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text("".join(f"x {path} tmpfs rw 0 0\n" for path in [*others, *ours]))
    root.program("umount", '#!/bin/sh\necho "$1" >> CALLS\n')
    root.run(kubeadm._UNMOUNT)
    assert sorted(root.called().split()) == sorted(ours)
    assert not Path(sandbox).exists() and Path(states).exists()


@pytest.mark.parametrize(("answers", "line"), [(True, "containerd\tnamespace moby"), (False, "containerd\tnot known")])
def test_a_containerd_that_does_not_answer_is_not_taken_for_empty(tmp_path: Path, answers: bool, line: str) -> None:
    root = Root(tmp_path, "")
    root.program("ctr", f"#!/bin/sh\n{'echo moby' if answers else 'exit 1'}\n")
    part = INVENTORY[INVENTORY.index("if command -v ctr") : INVENTORY.index("ls -1 /dev")]
    assert root.run(part.replace("[ -S ", "[ -d ").replace("containerd/containerd.sock", "")).splitlines() == [line]


def test_a_namespace_that_may_have_been_there_is_no_trace_of_ours() -> None:
    changes = ["+\tcontainerd\tnamespace k8s.io"]
    assert judge("h", changes, "10.244.0.0/16").ours == ("+ containerd namespace k8s.io",)
    assert judge("h", [*changes, "-\tcontainerd\tnot known"], "10.244.0.0/16").ours == ()
