"""Clusters of one name: whose host is whose, by the id in its journal."""

from __future__ import annotations

import msgspec

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.host_checks import is_ours
from longboat.clusters.observe.identity import identify
from longboat.clusters.observe.parse import parse
from longboat.clusters.plan import system
from tests.clusters.worlds import bare, cluster

SPEC = cluster(workers=1)
MINE, OTHER = "aaaaaaaa", "bbbbbbbb"


def owners(control: str | None, worker: str | None, kept: str = "") -> tuple[str, list[str]]:
    """The id that is taken, and which hosts are of the cluster. None: a bare host."""
    facts: dict[str, HostFacts] = {}
    for name, text in (("cp-0", control), ("w-0", worker)):
        facts[name] = bare(name, journal_cluster="" if text is None else "lab", journal_id=text or "")
    spec, judged = identify(SPEC, facts, msgspec.structs.replace(SPEC, id=kept) if kept else None)
    return spec.id, [name for name, host in judged.items() if is_ours(spec, host)]


def test_a_new_cluster_gets_an_id_that_no_other_has() -> None:
    assert owners(None, None)[0] != owners(None, None)[0]


def test_from_elsewhere_the_control_plane_says_which_cluster_it_is() -> None:
    assert owners(MINE, MINE) == (MINE, ["cp-0", "w-0"])
    assert owners(MINE, OTHER) == (MINE, ["cp-0"])
    assert owners(None, OTHER) == (OTHER, ["w-0"])  # `up` was cut off before it reached the control plane


def test_what_was_made_here_is_known_here() -> None:
    assert owners(OTHER, OTHER, kept=MINE) == (MINE, [])
    assert owners(None, MINE, kept=MINE) == (MINE, ["w-0"])


def test_journals_without_an_id_count_by_their_name() -> None:
    assert owners("", MINE) == (MINE, ["cp-0", "w-0"])
    assert owners("", "", kept=MINE)[1] == ["cp-0", "w-0"]


def test_a_host_of_another_cluster_of_this_name_is_named() -> None:
    facts = {"w-0": bare("w-0", journal_cluster="lab", journal_id=OTHER)}
    _, judged = identify(SPEC, facts, msgspec.structs.replace(SPEC, id=MINE))
    assert judged["w-0"].journal_cluster == f"lab ({OTHER})"


def test_an_id_that_could_be_a_command_is_none() -> None:
    assert parse("h", "journal_id\t$(reboot)\n").journal_id == ""
    assert parse("h", f"journal_id\t{MINE}\n").journal_id == MINE


def test_the_journal_has_the_id() -> None:
    spec = msgspec.structs.replace(SPEC, id=MINE)
    step = system.journal(spec, spec.hosts[0], bare("cp-0"))
    assert step is not None and f"printf '%s\\n' {MINE} > id.new" in step.script
