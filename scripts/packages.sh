#!/bin/sh
# sh scripts/packages.sh NAME...: have these Debian/Ubuntu packages. Missing ones are installed when root, else named.
set -eu

missing=""
for name in "$@"; do
    case $name in
        *[!a-z0-9.+-]*) echo "error: not a package name: $name" >&2; exit 1 ;;
    esac
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "error: missing system packages (Debian's names):$missing; install them with this system's package tool" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "error: missing system packages; type: sudo apt-get install -y$missing" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    # shellcheck disable=SC2086  # one word per package
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >"$log" 2>&1
}
echo "installing system packages:$missing" >&2
# The package lists of a fresh image are empty or old: they are read again only if needed.
if ! install && ! { apt-get update >"$log" 2>&1 && install; }; then
    tail -n 5 "$log" >&2
    echo "error: apt-get could not install:$missing (is the network reachable?)" >&2
    exit 1
fi
