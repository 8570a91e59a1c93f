"""Takes back what the journal of a host holds, newest change first, and compares the host with what it was before."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from longboat.clusters.hosts.connection import CommandFailed, HostConnection
from longboat.clusters.plan.inventory_shell import INVENTORY
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.network import is_inside
from longboat.clusters.provisioner.volumes import is_folder_name
from longboat.core.jobs import Value

# From the newest to the oldest. One that fails ends it: older ones may take away what it still needs. The next `down`
# goes on from there. An entry leaves the journal by its name, in one step, before its files go.
_UNDO = r"""
[ -d "$LB/undo" ] || exit 0
rm -rf "$LB/undo/.new" "$LB/undo/.gone"
# What the journal speaks of is written down before its entries go, for the audit.
touched() {
    [ ! -e "$LB/touched" ] || cat "$LB/touched"
    for name in $(ls "$LB/undo"); do printf 'entry %s\n' "${name#*-}"; done
    for list in "$LB"/undo/[0-9]*/path; do [ ! -e "$list" ] || { printf 'path '; cat "$list"; echo; }; done
    for list in "$LB"/undo/[0-9]*/folders; do [ ! -e "$list" ] || sed -n 's/^\//tree \//p' "$list"; done
    for list in "$LB"/undo/[0-9]*/keys; do [ ! -e "$list" ] || sed 's/^gpg-pubkey-/key gpg-pubkey /' "$list"; done
    for list in "$LB"/undo/[0-9]*/packages; do
        [ -e "$list" ] || continue
        for package in $(cat "$list"); do
            printf 'package %s\n' "$package"
            { dpkg -L "$package" || rpm -ql "$package" || true; } 2>/dev/null | sed -n 's/^\//path \//p'
        done
    done
}
touched | sort -u > "$LB/touched.new"
sync "$LB/touched.new" 2>/dev/null || sync
mv "$LB/touched.new" "$LB/touched"
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
rm -rf "$LB/done" "$LB/archives" "$LB/bundle" "$LB/put" "$LB/images.tar"
"""

_COMPARE = f"""
[ -e "$LB/before" ] || exit 0
inventory() {{
{INVENTORY}
}}
inventory > "$LB/after"
awk 'NR == FNR {{before[$0] = 1; next}} {{after[$0] = 1; if (!($0 in before)) print "+\\t" $0}}
    END {{for (line in before) if (!(line in after)) print "-\\t" line}}' "$LB/before" "$LB/after" | sort -k 2
[ ! -e "$LB/touched" ] || sed 's/^/=\t/' "$LB/touched"
"""

PURGE_S = 3600.0  # checkpoints of years, on a slow disk

OURS = re.compile(
    r"kube|(^|[/._ -])cni([0-9/._ -]|$)|containerd|(^|[/ ])runc|etcd|flannel|longboat|cri-tools|KUBE-|CNI-"
    r"|nvidia-(ctk|cdi|container)|(^|[/ ])cdi( |$)"
)
"""Names of what runs alone brings onto a host: interfaces, routes, chains, mounts. No journal has these."""

_RUNTIME = ("interface", "route", "rule", "chain", "mount", "user", "group", "device")


class HostAudit(Value, frozen=True):
    """Differences of a host between before `up` and after `down`."""

    host: str
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def undo(host: HostConnection, *, on_line: Callable[[str], None], timeout_s: float) -> None:
    result = host.run(PRELUDE + _UNDO, timeout_s=timeout_s, on_line=on_line)
    if result.code != 0:
        raise CommandFailed(host.name, result, hint="longboat cluster down again tries only what is left")


def audit(host: HostConnection, pods: str) -> HostAudit:
    """Compare the host with its state before `up`; the journal stays until nothing of ours is left. `pods`: the pod
    range.
    """
    result = host.run(PRELUDE + _COMPARE, timeout_s=120)  # it lists packages, which takes a slow disk half a minute
    if result.code != 0:
        raise CommandFailed(host.name, result)
    return judge(host.name, result.stdout.splitlines(), pods)


class Touched(Value, frozen=True):
    """Entries, packages and paths recorded in a host's journal."""

    entries: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    """Files that were written or replaced, and those of packages."""
    trees: tuple[str, ...] = ()
    """Folders that were not there before, with all that is in them."""
    keys: frozenset[str] = frozenset()
    """Keys that rpm trusts, as it lists them: a package's name and a version."""

    @property
    def units(self) -> frozenset[str]:
        """Names of recorded systemd units, which links elsewhere enable."""
        names = {path.rpartition("/")[2] for path in self.paths}
        return frozenset(name for name in names if name.endswith((".service", ".socket", ".timer", ".slice", ".path")))


def judge(host: str, lines: list[str], pods: str) -> HostAudit:
    """Split the differences of a host into ours (related to the journal) and others'."""
    changes = [(sign, text.replace("\t", " ")) for sign, _, text in (line.partition("\t") for line in lines) if text]
    touched = read_touched([text for sign, text in changes if sign == "="])
    ours: list[str] = []
    others: list[str] = []
    # A containerd that stood still before may have had this namespace all along.
    unclear = "containerd namespace k8s.io" if ("-", "containerd not known") in changes else ""
    for sign, text in changes:
        if sign != "=":
            (ours if text != unclear and is_ours(text, pods, touched) else others).append(f"{sign} {text}")
    return HostAudit(host=host, ours=tuple(ours), others=tuple(others))


def read_touched(lines: list[str]) -> Touched:
    words: dict[str, set[str]] = {kind: set() for kind in ("entry", "package", "path", "tree", "key")}
    for line in lines:
        kind, _, name = line.partition(" ")
        if name:
            words.get(kind, set()).add(name)
    return Touched(
        entries=frozenset(words["entry"]),
        packages=frozenset(words["package"]),
        # Packages may name /bin what is a link to /usr/bin, where the inventory meets it.
        paths=frozenset(words["path"] | {f"/usr{path}" for path in words["path"] if not path.startswith("/usr/")}),
        trees=tuple(sorted(words["tree"])),
        keys=frozenset(words["key"]),
    )


def is_ours(text: str, pods: str, touched: Touched) -> bool:
    kind, _, rest = text.partition(" ")
    name = rest.partition(" ")[0]
    if name.startswith("/root/"):
        return False  # `up` writes nothing there; people keep manifests and checkouts of their own in it
    if "longboat" in rest or text == "containerd namespace k8s.io" or (kind in _RUNTIME and OURS.search(rest)):
        return True
    if kind == "route":
        return is_inside(name, pods)  # not `default`, and not of another family
    if kind in ("package", "hold"):
        return name in touched.packages or rest in touched.keys
    if kind in ("sysctl", "swap"):
        return (f"sysctl-{name}" if kind == "sysctl" else "swap") in touched.entries
    if kind in ("unit", "link") and name.rpartition("/")[2] in touched.units:
        return True
    # Lines of files end with a hash, those of links with their target; a path may hold blanks.
    if {rest, name, rest.rpartition(" ")[0]} & touched.paths:
        return True
    return any(rest == tree or rest.startswith((f"{tree}/", f"{tree} ")) for tree in touched.trees)


def clear_volumes(host: HostConnection, folder: str, purged: Sequence[str]) -> tuple[str, ...]:
    """Remove the folder of volumes if it is empty; before that the volumes `purged`, by their names. Returns the names
    of those that are left.

    No others are touched: an earlier cluster may have left them on purpose.
    """
    place = shlex.quote(folder)
    doomed = [name for name in purged if is_folder_name(name)]
    delete = f'while read -r name; do rm -rf --one-file-system -- {place}/"$name"; done'
    script = f"""set -e
cd {place} 2>/dev/null || exit 0
{delete if doomed else ""}
ls -d -- pvc-????????-????-????-????-???????????? 2>/dev/null || true
cd /
rmdir -- {place} 2>/dev/null || true
"""
    result = host.run(script, stdin="".join(f"{name}\n" for name in doomed).encode(), timeout_s=PURGE_S)
    if result.code != 0:
        raise CommandFailed(host.name, result)
    return tuple(result.stdout.split())


_FORGET = r"""
[ -z "$(ls "$LB/undo" 2>/dev/null)" ] || fail "error: somebody changes this host"
# The name goes last: whatever cuts this off, the next `down` finds the rest, and no other cluster meets its id.
find "$LB" -mindepth 1 -maxdepth 1 ! -name cluster ! -name lock -exec rm -rf {} +
rm -f "$LB/cluster"
rm -rf "$LB"
"""


def forget(host: HostConnection) -> None:
    """Remove the journal, last, and only if nothing was added to it meanwhile."""
    result = host.run(PRELUDE + _FORGET, timeout_s=60)
    if result.code != 0:
        raise CommandFailed(host.name, result)
