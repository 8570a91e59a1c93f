"""Machines over SSH: four at once, `up` with nothing to do, a plan for 200, from bare hosts to a first training.

python bench/hosts.py        all of it, about ten minutes; needs root: hosts are the testbed's, on this machine's cores
python bench/hosts.py plan   only the plan for 200 hosts; also four, longboat, hand
python bench/hosts.py servers   four SSH servers that all show this machine: needs no root, and a core for each of them

Hosts beyond three or four are simulated (`simulated_hosts`), and the figures' names say so.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

import kubeadm_by_hand
from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.hosts.pool import Hosts, connect, side_by_side
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.observe.probe_shell import script as probe
from longboat.clusters.observe.problems import find_problems
from longboat.clusters.plan.host_plan import plan_hosts
from longboat.clusters.spec import ClusterSpec, HostSpec, PackageRepository, SoftwareSource
from longboat.clusters.up import ClusterUp, UpResult
from simulated_hosts import ControlPlane, SimulatedHost
from ssh_servers import serve
from testbed import apt_repository, cleanup, hosts
from testbed.hosts import Group
from tests.clusters.conftest import Lab
from tests.clusters.recipes import IMAGE, give_images

NAME, TIMES, STEP_S = "bench-hosts", 5, 2
MANY, TEN = 200, 10
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits"
Figures = dict[str, float]


def measure() -> Figures:
    result: Figures = {}
    if not (hosts.missing() or apt_repository.missing()):
        for part in PARTS.values():
            result |= part()
    return result


@contextmanager
def group_of(count: int) -> Iterator[Group]:
    try:
        yield hosts.up(NAME, count)
    finally:
        cleanup.down(NAME)


def taken_s(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def usual_s(work: Callable[[], object]) -> float:
    work()  # what is read for the first time comes from the disk
    return statistics.median(taken_s(work) for _ in range(TIMES))


def of_four() -> Figures:
    with group_of(4) as group:
        settings = LoginSettings(configs=(group.hosts[0].config,))
        specs = [HostSpec(name=host.name, address=host.name) for host in group.hosts]
        ten = [HostSpec(name=f"{number}", address=specs[number % 4].address) for number in range(TEN)]
        return {**of_specs(specs, settings), **of_ten(ten, settings), **of_plan(specs[0], settings)}


BURN = "number=0; while [ $number -lt 100000 ]; do number=$((number + 1)); done"
"""Nothing but processor time, about as much as it takes to read all facts: what this costs four hosts that share cores
has nothing to do with SSH.
"""


def of_specs(specs: list[HostSpec], settings: LoginSettings) -> Figures:
    def step(opened: Hosts) -> None:
        opened.each(lambda host: host.run(f"sleep {STEP_S}")).checked()

    def burn(opened: Hosts) -> None:
        opened.each(lambda host: host.run(BURN)).checked()

    def facts(opened: Hosts) -> None:
        opened.each(read_facts).checked()

    result: Figures = {}
    works = ((f"a step of {STEP_S} s", step), ("a loop that counts", burn), ("all facts", facts))
    for title, work in works:
        alone = max(on_hosts_s([spec], settings, work) for spec in specs)
        together = on_hosts_s(specs, settings, work)
        result |= {f"{title}, the slowest host alone, s": alone, f"{title}, 4 hosts, s": together}
        result[f"{title}, 4 hosts in parallel to the slowest alone"] = together / alone
    return result


def on_hosts_s(specs: list[HostSpec], settings: LoginSettings, work: Callable[[Hosts], None]) -> float:
    with connect(specs, settings) as opened:
        return usual_s(lambda: work(opened))


def of_servers() -> Figures:
    with tempfile.TemporaryDirectory() as folder, serve(4, Path(folder)) as ports:
        settings = LoginSettings(configs=(Path(folder) / "config",))
        specs = [HostSpec(name=f"server-{port}", address="127.0.0.1", port=port) for port in ports]
        figures = of_specs(specs, settings)
        alone = usual_s(lambda: connect(specs[:1], settings).close())
        together = usual_s(lambda: connect(specs, settings).close())
        named = {f"{name} (servers of this machine)": value for name, value in figures.items()}
        return {**named, "logins to 4 servers of this machine to a login to one": together / alone}


def of_ten(specs: list[HostSpec], settings: LoginSettings) -> Figures:
    def whole() -> None:
        with connect(specs, settings) as opened:
            opened.each(read_facts).checked()

    return {f"{TEN} logins and all facts, s": usual_s(whole)}


def of_plan(spec: HostSpec, settings: LoginSettings) -> Figures:
    """Looking at 200 bare hosts, judging them, and planning every step."""
    with connect([spec], settings) as opened:
        seen = opened[spec.name].run(probe()).stdout
    names = [f"sim-{number:03}" for number in range(MANY)]
    planes = [HostSpec(name=name, address=name, role="control-plane") for name in names[:3]]
    workers = [HostSpec(name=name, address=name) for name in names[3:]]
    source = SoftwareSource(repositories=(PackageRepository(url="https://mirror.test/", key="key"),))
    cluster = ClusterSpec(name="many", hosts=(*planes, *workers), endpoint="10.0.0.9", source=source)
    simulated = {name: SimulatedHost(name, seen) for name in names}

    def whole() -> None:
        facts = side_by_side(simulated, read_facts).checked()
        find_problems(cluster, list(facts.values()), {})
        plan = plan_hosts(cluster, facts, {"key": b"a public key"})
        assert len(plan.hosts) == MANY and all(host.steps for host in plan.hosts)

    return {f"facts, problems and plan of {MANY} simulated hosts, s": usual_s(whole)}


def with_longboat() -> Figures:
    with group_of(3) as group, tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder), group, repository_of(group))
        up = taken_s(lambda: lab("cluster", "up"))
        give_images(group.hosts[1:])
        options = ("--on", "lab", "--image", IMAGE, "--workdir", str(EXAMPLE))
        trained = taken_s(lambda: lab("run", *options, "--", "python", "train.py"))
        again = usual_s(lambda: lab("cluster", "up"))
        return {
            **of_first_training("Longboat", up, trained),
            "up with nothing to do, the whole command, 3 hosts, s": again,
            **of_second_up(lab),
        }


def by_hand() -> Figures:
    with group_of(3) as group:
        repository = repository_of(group)
        up = taken_s(lambda: kubeadm_by_hand.make_cluster(group, repository))
        give_images(group.hosts[1:])
        trained = taken_s(lambda: kubeadm_by_hand.train(group, EXAMPLE, IMAGE, copier(group)))
        return of_first_training("kubeadm and kubectl typed by hand", up, trained)


def of_first_training(who: str, up_s: float, trained_s: float) -> Figures:
    title = "from 3 bare hosts to the first finished training, minutes"
    return {
        f"{title}: cluster/{who}": up_s / 60,
        f"{title}: training/{who}": trained_s / 60,
        f"{title}: both/{who}": (up_s + trained_s) / 60,
    }


def repository_of(group: Group) -> apt_repository.Repository:
    repository = apt_repository.serve(group)
    for host in group.hosts:
        repository.use(host)
    return repository


def copier(group: Group) -> Callable[[Path, str], None]:
    def copy(file: Path, target: str) -> None:
        script = f"mkdir -p {os.path.dirname(target)} && cat > {target}"
        subprocess.run(group.hosts[0].command(script), input=file.read_bytes(), check=True, timeout=60)

    return copy


def of_second_up(lab: Lab) -> Figures:
    """Three real hosts and seven simulated ones; the first time they get routes to each other."""
    spec = read_cluster(lab.folder / "cluster.yaml")
    number = lab.group.record.range
    added = [
        HostSpec(name=f"sim-{index}", address=f"sim-{index}", node_address=f"10.{number}.0.{100 + index}")
        for index in range(TEN - len(spec.hosts))
    ]
    nodes = {host.name: (host.node_address or "", f"172.29.{100 + at}.0/24") for at, host in enumerate(added)}
    settings = LoginSettings(configs=(lab.group.hosts[0].config,))
    with connect(spec.hosts, settings) as opened:
        seen = opened[spec.hosts[-1].name].run(probe()).stdout
    simulated = {host.name: SimulatedHost(host.name, seen) for host in added}
    ten = msgspec.structs.replace(spec, hosts=(*spec.hosts, *added))

    def whole() -> UpResult:
        with connect(spec.hosts, settings) as opened:
            first = spec.control_planes[0].name
            opened.connections[first] = ControlPlane(opened[first], nodes)
            opened.connections.update(simulated)
            facts = opened.each(read_facts).checked()
            errors = [each for each in find_problems(ten, list(facts.values()), {}) if each.severity == "error"]
            assert not errors, errors
            work = ClusterUp(ten, opened.connections, facts, lambda event: None)
            return work.run(work.plan())

    assert not whole().failures
    assert whole().changes == 0
    return {f"up with nothing to do, {TEN} hosts of which {len(added)} are simulated, s": usual_s(whole)}


def only_plan() -> Figures:
    with group_of(1) as group:
        return of_plan(HostSpec(name="host-0", address="host-0"), LoginSettings(configs=(group.hosts[0].config,)))


PARTS = {"four": of_four, "longboat": with_longboat, "hand": by_hand}

if __name__ == "__main__":
    parts = {**PARTS, "plan": only_plan, "servers": of_servers}
    for chosen in sys.argv[1:] or PARTS:
        for name, value in parts[chosen]().items():
            print(f"{name:90} {value:.3f}", flush=True)
