"""What a person types to get from bare hosts to a first training with kubeadm and kubectl: one host after the other.

Only the machines' time counts: whoever types them reads, looks things up and makes mistakes besides.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed import kubeadm
from testbed.apt_repository import Repository
from testbed.hosts import Group
from tests.testbed.test_kubeadm import IGNORED, KUBECTL, init_configuration

WAIT_S = 600.0
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: digits}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: IMAGE
        command: [python, /code/train.py, --epochs, "3"]
        workingDir: /tmp
        volumeMounts: [{name: code, mountPath: /code}]
      volumes: [{name: code, configMap: {name: digits}}]
"""


def make_cluster(group: Group, repository: Repository) -> None:
    first, *others = group.hosts
    for number in range(len(group.hosts)):
        kubeadm.install(group, number, repository)
    first.run("cat > init.yaml", text=init_configuration(group))
    first.run(f"sudo kubeadm init --config init.yaml --ignore-preflight-errors={IGNORED} 2>&1", within_s=WAIT_S)
    join = first.run("sudo kubeadm token create --print-join-command").strip()
    for host in others:
        host.run(f"sudo {join} --ignore-preflight-errors={IGNORED} 2>&1", within_s=WAIT_S)
    first.run(f"{KUBECTL} wait --for=condition=Ready node --all --timeout={WAIT_S:.0f}s", within_s=WAIT_S)


def train(group: Group, example: Path, image: str, copy: Callable[[Path, str], None]) -> str:
    """The log. `copy` puts a file of the example onto the first host, as scp does."""
    first = group.hosts[0]
    for file in sorted(path for path in example.iterdir() if path.suffix in (".py", ".npz")):
        copy(file, f"digits/{file.name}")
    first.run(f"{KUBECTL} create configmap digits --from-file=digits")
    first.run(f"{KUBECTL} apply -f -", text=JOB.replace("IMAGE", image))
    first.run(f"{KUBECTL} wait --for=condition=complete job/digits --timeout={WAIT_S:.0f}s", within_s=WAIT_S)
    return first.run(f"{KUBECTL} logs job/digits")
