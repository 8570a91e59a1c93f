"""Before and after of a host, seen from outside: files, packages, units, interfaces, routes, rules, mounts, settings.

For tests of what sets hosts up and takes everything away again: `look` before and after, `changes` between the two.
What changes by itself is left out, each with its reason. Not the audit that Longboat makes itself: this one must not
share a mistake with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.hosts import Host

FOLDERS = ("/etc", "/usr", "/opt", "/var/lib", "/root", "/home", "/srv", "/boot")
LOOK_S = 300.0  # 12,000 files are read on a machine that may be busy
IGNORED: Mapping[str, Mapping[str, str]] = {
    "files": {
        r"/var/lib/apt/lists(/.*)?": "apt's copies of lists, fetched anew by any update",
        r"/var/lib/dpkg/(status|diversions|statoverride)-old": "dpkg keeps the file as it was before the last change",
        r"/var/lib/dpkg/(lock.*|triggers/Lock)": "empty files that are made when first needed",
        r"/var/lib/systemd/(random-seed|timers(/.*)?)": "systemd writes down times and seeds by itself",
        r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-": "the file as it was before the last change",
        r"(/root|/home/[^/]+)/\.(bash_history|lesshst|cache(/.*)?)": "what a person did, not what was installed",
    },
    "running units": {
        r"systemd-tmpfiles-clean\..*|run-.*": "runs for a moment when its time comes",
        r".*\.(scope|device|mount|swap)": "logins and devices; mounts are compared as mounts",
    },
    "settings": {
        r"fs\.(dentry-state|file-nr|inode-nr|inode-state|quota\.syncs)": "counters of the kernel",
        r"kernel\.(ns_last_pid|pty\.nr|random\.(uuid|entropy_avail))": "counters and random numbers of the kernel",
        r"net\.netfilter\.nf_conntrack_count": "how many connections there are now",
        r"fs\.inotify\.max_user_instances": "the machine's, raised while anything of the testbed runs",
    },
}
"""Kind to patterns of a whole name, each with the reason why a difference there is none."""
# One round trip, with nothing but a shell, Python's standard library and the usual commands; root sees everything.
_LOOK = r"""
import hashlib, json, os, stat, subprocess

def out(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []

def entry(path):
    info = os.lstat(path)
    told = "%o %d:%d" % (info.st_mode, info.st_uid, info.st_gid)
    if stat.S_ISLNK(info.st_mode):
        return told + " -> " + os.readlink(path)
    if stat.S_ISREG(info.st_mode):
        digest = hashlib.sha256()
        with open(path, "rb") as content:
            for block in iter(lambda: content.read(1 << 20), b""):
                digest.update(block)
        return told + " " + digest.hexdigest()[:16]
    return told

PACKAGE = "${Package}\t${Version} ${db:Status-Abbrev}\n"
files = {}
for top in FOLDERS:
    for folder, names, others in os.walk(top):
        for path in [folder] + [os.path.join(folder, name) for name in others] + [
            os.path.join(folder, name) for name in names if os.path.islink(os.path.join(folder, name))
        ]:
            try:
                files[path] = entry(path)
            except OSError:
                pass
settings = dict(line.split(" = ", 1) for line in out("sysctl", "-a") if " = " in line)
units = {line.split()[0]: " ".join(line.split()[1:2]) for line in out(
    "systemctl", "list-unit-files", "--no-legend", "--no-pager", "--plain") if line.split()}
running = {line.split()[0]: "running" for line in out(
    "systemctl", "list-units", "--state=active", "--no-legend", "--no-pager", "--plain") if line.split()}
links = {row["ifname"]: row.get("link_type", "") + " " + " ".join(sorted(
    one["local"] for one in row.get("addr_info", []) if one.get("scope") == "global"))
    for row in json.loads("".join(out("ip", "-j", "addr")) or "[]")}
chains, inside = {}, []
for line in out("nft", "-s", "list", "ruleset"):
    text = line.strip()
    if text == "}":
        inside.pop()
    elif text:
        chains[" ".join(inside + [text.rstrip("{ ")])] = ""
        if text.endswith("{"):
            inside.append(text.rstrip("{ "))
mounts = {}
for line in open("/proc/self/mountinfo"):
    parts = line.split()
    mounts[parts[4]] = parts[parts.index("-") + 1]
print(json.dumps({
    "files": files,
    "packages": dict(line.split("\t") for line in out("dpkg-query", "-W", "-f=" + PACKAGE)),
    "holds": {name: "held" for name in out("apt-mark", "showhold")},
    "units": units,
    "running units": running,
    "interfaces": links,
    "routes": {line: "" for line in out("ip", "route", "show", "table", "all")},
    "rules": {line: "" for line in out("ip", "rule")},
    "nft": chains,
    "mounts": mounts,
    "settings": settings,
    "modules": {line.split()[0]: "" for line in out("cat", "/proc/modules")},
    "swap": {line.split()[0]: "" for line in out("cat", "/proc/swaps")[1:]},
    "users": {line.split(":")[0]: "" for line in open("/etc/passwd")},
    "listening": {row.split()[0] + " " + row.split()[4]: "" for row in out("ss", "-Hltun")},
}))
"""


@dataclass(frozen=True)
class Look:
    """Everything of a host that could differ, by kind and name."""

    parts: Mapping[str, Mapping[str, str]]


def look(host: Host) -> Look:
    """As it is now. Nothing is left on the host."""
    script = f"FOLDERS = {json.dumps(FOLDERS)}\n{_LOOK}"
    return Look(json.loads(host.run("python3 -I -B -", text=script, user="root", within_s=LOOK_S)))


def is_ignored(kind: str, name: str) -> bool:
    """Whether a difference there is none."""
    return any(re.fullmatch(pattern, name) for pattern in IGNORED.get(kind, {}))


def changes(before: Look, after: Look) -> list[str]:
    """What is new (+), gone (-) or different (~), one line each. Pure."""
    lines = []
    for kind in before.parts:
        old, new = before.parts[kind], after.parts[kind]
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) == new.get(name) or is_ignored(kind, name):
                continue
            if name not in old:
                lines.append(f"{kind}: + {name} {new[name]}".rstrip())
            elif name not in new:
                lines.append(f"{kind}: - {name} {old[name]}".rstrip())
            else:
                lines.append(f"{kind}: ~ {name} {old[name]} => {new[name]}")
    return lines
