"""Takes back what the journal of a host holds, newest change first, and compares the host with what it was before."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from longboat.clusters.hosts.connection import CommandFailed, HostConnection
from longboat.clusters.plan.inventory_shell import INVENTORY
from longboat.clusters.plan.journal_shell import JOURNAL, PRELUDE
from longboat.clusters.plan.network import is_inside
from longboat.core.jobs import Value

# From the newest to the oldest. One that fails ends it: older ones may take away what it still needs. The next `down`
# goes on from there. An entry leaves the journal by its name, in one step, before its files go.
_UNDO = r"""
[ -d "$LB/undo" ] || exit 0
rm -rf "$LB/undo/.new" "$LB/undo/.gone"
for name in $(ls -r "$LB/undo"); do
    HERE=$LB/undo/$name
    export HERE
    title=${name#*-}
    [ ! -e "$HERE/path" ] || title=$(cat "$HERE/path")
    say "undo $title"
    sh -eu "$HERE/run" </dev/null || fail "error: not undone: $title; what is older waits for it"
    mv "$HERE" "$LB/undo/.gone"
    sync "$LB/undo" 2>/dev/null || sync
    rm -rf "$LB/undo/.gone"
done
command -v systemctl >/dev/null && { systemctl daemon-reload; systemctl reset-failed 2>/dev/null || true; }
rm -rf "$LB/done" "$LB/archives" "$LB/put" "$LB/images.tar"
"""

_COMPARE = f"""
[ -e "$LB/before" ] || exit 0
inventory() {{
{INVENTORY}
}}
inventory > "$LB/after"
awk 'NR == FNR {{before[$0] = 1; next}} {{after[$0] = 1; if (!($0 in before)) print "+\\t" $0}}
    END {{for (line in before) if (!(line in after)) print "-\\t" line}}' "$LB/before" "$LB/after" | sort -k 2
"""

PURGE_S = 3600.0  # checkpoints of years, on a slow disk

OURS = re.compile(
    r"kube|(^|[/._ -])cni([0-9/._ -]|$)|containerd|(^|[/ ])runc|etcd|flannel|longboat|cri-tools|KUBE-|CNI-"
    r"|nvidia-(ctk|cdi|container)|(^|[/ ])cdi( |$)"
)
"""Names that only we bring onto a host. Other differences are shown too, but are other people's doing."""


class HostAudit(Value, frozen=True):
    """What differs between the host before `up` and after `down`."""

    host: str
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def undo(host: HostConnection, *, on_line: Callable[[str], None], timeout_s: float) -> None:
    result = host.run(PRELUDE + _UNDO, timeout_s=timeout_s, on_line=on_line)
    if result.code != 0:
        raise CommandFailed(host.name, result, hint="longboat cluster down again tries only what is left")


def audit(host: HostConnection, pods: str) -> HostAudit:
    """Compared on the host; the journal stays until nothing of ours is left. `pods`: the addresses of pods."""
    result = host.run(PRELUDE + _COMPARE, timeout_s=120)
    if result.code != 0:
        raise CommandFailed(host.name, result)
    return judge(host.name, result.stdout.splitlines(), pods)


def judge(host: str, lines: list[str], pods: str) -> HostAudit:
    changes = [(sign, text.replace("\t", " ")) for sign, _, text in (line.partition("\t") for line in lines) if text]
    ours = [f"{sign} {text}" for sign, text in changes if is_ours(text, pods)]
    others = [f"{sign} {text}" for sign, text in changes if not is_ours(text, pods)]
    return HostAudit(host=host, ours=tuple(ours), others=tuple(others))


def is_ours(text: str, pods: str) -> bool:
    if text.startswith("file /root/"):
        return False  # `up` writes nothing there; people keep manifests and checkouts of their own in it
    if OURS.search(text):
        return True
    words = text.split()
    if words[0] != "route" or len(words) < 2:
        return False
    return is_inside(words[1], pods)  # not `default`, and not of another family


def clear_volumes(host: HostConnection, path: str, *, purges: bool) -> bool:
    """The folder of volumes goes if it is empty; with `purges` volumes go first. Whether some are kept.

    Nothing else in it is touched: the folder is of the user's choice.
    """
    folder = shlex.quote(path)
    volumes = "pvc-????????-????-????-????-????????????"
    script = f"""set -e
[ -d {folder} ] || exit 0
{f"rm -rf --one-file-system -- {folder}/{volumes}" if purges else ""}
rmdir -- {folder} 2>/dev/null || true
ls -d -- {folder}/{volumes} 2>/dev/null || true
"""
    result = host.run(script, timeout_s=PURGE_S)
    if result.code != 0:
        raise CommandFailed(host.name, result)
    return bool(result.stdout.strip())


def forget(host: HostConnection) -> None:
    """The journal goes last, and only if nobody has added to it meanwhile."""
    script = f'[ -z "$(ls "$LB/undo" 2>/dev/null)" ] || fail "error: somebody changes this host"\nrm -rf {JOURNAL}\n'
    result = host.run(PRELUDE + script, timeout_s=60)
    if result.code != 0:
        raise CommandFailed(host.name, result)
