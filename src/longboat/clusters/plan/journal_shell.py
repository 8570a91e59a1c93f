"""The journal on a host, as shell functions for every script: the undo of a change is on the disk before the change.

`/var/lib/longboat` of a host holds `cluster` (its name), `before` (what the host was like), `undo/NNNN-NAME` (a folder
per change with a script `run` and what it needs), `done/NAME` (the key of the step that was carried out). Whatever
kills a script, the next `up` finds the steps that are missing and `down` finds every undo. An undo may be run for a
change that was never made.
"""

from __future__ import annotations

import base64
import shlex

JOURNAL = "/var/lib/longboat"

PRELUDE = r"""
set -eu
umask 022
LB=/var/lib/longboat
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
# One command at a time changes a host: another laptop's, or a script that a broken connection has left running.
if [ -d "$LB" ] && command -v flock >/dev/null; then
    exec 9> "$LB/lock"
    flock -w 120 9 || { echo "error: another longboat cluster command works on this host" >&2; exit 1; }
    # It may be that of a journal which is gone: `down` held it. A change would have no undo that anybody finds.
    [ "$LB/lock" -ef /proc/self/fd/9 ] || { echo "error: this host was taken down meanwhile" >&2; exit 1; }
fi
say() { printf '%s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }
# entry NAME: opens a folder for the undo of NAME in $new; false if there is one already. close_entry puts it in force.
entry() {
    for seen in "$LB"/undo/[0-9]*-"$1"; do [ -d "$seen" ] && return 1; done
    new=$LB/undo/.new
    rm -rf "$new"
    mkdir -p "$new"
    entry_name=$1
}
close_entry() {
    last=$(ls "$LB/undo" | sed -n 's/^0*\([0-9]\{1,\}\)-.*/\1/p' | sort -n | tail -n 1)
    sync "$new"/* "$new" 2>/dev/null || sync
    mv "$new" "$LB/undo/$(printf %04d $((${last:-0} + 1)))-$entry_name"
    sync "$LB/undo" 2>/dev/null || sync
}
# undo NAME: the script on stdin takes NAME back. The first one stays: it knows what was there before.
undo() {
    if entry "$1"; then cat > "$new/run"; close_entry; else cat > /dev/null; fi
}
# save PATH: what is there now, or nothing, comes back.
save() {
    if entry "file-$(printf %s "$1" | sha256sum | cut -c 1-12)"; then
        printf '%s' "$1" > "$new/path"
        if [ -e "$1" ] || [ -L "$1" ]; then cp -a "$1" "$new/saved"; else : > "$new/absent"; fi
        folder=$(dirname "$1")
        while [ ! -d "$folder" ]; do printf '%s\n' "$folder"; folder=$(dirname "$folder"); done > "$new/folders"
        cat > "$new/run" <<'UNDO'
path=$(cat "$HERE/path")
if [ -e "$HERE/saved" ] || [ -L "$HERE/saved" ]; then
    mkdir -p "$(dirname "$path")"
    rm -rf "$path.longboat"
    cp -a "$HERE/saved" "$path.longboat"
    mv -fT "$path.longboat" "$path"
elif [ -e "$HERE/absent" ]; then
    rm -rf "$path" "$path.longboat"
    while read -r folder; do rmdir "$folder" 2>/dev/null || true; done < "$HERE/folders"
else
    echo "error: what was in $path before is missing in the journal" >&2
    exit 1
fi
UNDO
        close_entry
    fi
}
# put PATH MODE BASE64: the file has this content and mode; nothing is written where it has.
put() {
    printf %s "$3" | base64 -d > "$LB/put"
    if [ -f "$1" ] && cmp -s "$LB/put" "$1" && [ "$(stat -c %a "$1")" = "$2" ]; then rm "$LB/put"; return 0; fi
    save "$1"
    mkdir -p "$(dirname "$1")"
    cp "$LB/put" "$1.longboat"
    chmod "$2" "$1.longboat"
    mv -fT "$1.longboat" "$1"
    rm "$LB/put"
}
# done_with NAME KEY: the step was carried out in this form.
done_with() {
    mkdir -p "$LB/done"
    printf '%s\n' "$2" > "$LB/done/.new"
    sync "$LB/done/.new" 2>/dev/null || sync
    mv "$LB/done/.new" "$LB/done/$1"
    sync "$LB/done" 2>/dev/null || sync
}
"""

HAS_JOURNAL = '[ -s "$LB/cluster" ] || fail "error: this host has no journal: it was taken down meanwhile"\n'
"""Comes before every change but the journal itself: nobody would look for an undo elsewhere."""


def put(path: str, content: str | bytes, mode: int = 0o644) -> str:
    """A script line that writes a file as root. Not for secrets: other users can read arguments."""
    data = content.encode() if isinstance(content, str) else content
    return f"put {shlex.quote(path)} {mode:o} {base64.b64encode(data).decode()}\n"


def undo(name: str, script: str) -> str:
    """Script lines that add an undo to the journal."""
    return f"undo {name} <<'UNDO'\n{script.strip()}\nUNDO\n"
