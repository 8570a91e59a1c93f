"""Steps that install packages with the host's own package manager, apt or dnf, from signed repositories. Pure.

What is installed already stays as it is; what we install is held at its version, and only that is removed again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan import runtime
from longboat.clusters.plan.journal_shell import put, undo
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.spec import ClusterSpec, HostSpec, PackageRepository
from longboat.core.errors import InternalError

KUBERNETES_PACKAGES = ("kubelet", "kubeadm", "kubectl")
APT_LIST, DNF_REPO = "/etc/apt/sources.list.d/longboat.list", "/etc/yum.repos.d/longboat.repo"
HELD = (*KUBERNETES_PACKAGES, "containerd", "containerd.io", "kubernetes-cni", "cri-tools")

SUMS = "SHA256SUMS"
"""In the stream of a bundle's packages, as sha256sum reads it."""

# Only our own lists are fetched: a broken mirror of the distribution's matters only if something is missing then.
_FROM_REPOSITORY = r"""
ours="-o Dir::Etc::sourcelist=sources.list.d/longboat.list -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
if [ -e /etc/apt/sources.list.d/longboat.list ]; then apt-get -q update $ours; fi
"""

# A bundle comes through stdin, as a repository with an index. Its checksums were compared, so apt may trust it.
_FROM_BUNDLE = f"""
rm -rf "$LB/bundle"
mkdir -p "$LB/bundle/packages" "$LB/bundle/lists/partial"
tar -x --no-same-owner --no-same-permissions -C "$LB/bundle/packages"
(cd "$LB/bundle/packages" && sha256sum --quiet --strict -c {SUMS}) || fail "error: packages were damaged on their way"
printf 'deb [trusted=yes] file:%s ./\\n' "$LB/bundle/packages" > "$LB/bundle/sources.list"
cat > "$LB/bundle/apt.conf" <<END
Dir::Etc::sourcelist "$LB/bundle/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$LB/bundle/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
export APT_CONFIG="$LB/bundle/apt.conf"
apt-get -q update
"""

_OPTIONS = r"""
command -v dpkg >/dev/null && dpkg --configure -a
mkdir -p "$LB/archives/partial"
options="-q -y --no-install-recommends --no-remove -o Dpkg::Options::=--force-confold"
options="$options -o Dir::Cache::archives=$LB/archives -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120"
"""
APT_START = _OPTIONS + _FROM_REPOSITORY
APT_END = r"""
for name in $HELD; do
    if grep -qx "$name" "$LB"/undo/[0-9]*-packages/packages; then apt-mark hold "$name" >/dev/null; fi
done
rm -rf "$LB/archives" "$LB/bundle"
"""

_APT = (
    r"""
plan() {
    planned=$(apt-get install -s $options "$@") || return 1
    printf '%s\n' "$planned" | sed -n 's/^Inst \([^ ]*\) (.*/\1/p'
    # What is installed already and would change is the user's: on the way back it could not be restored.
    changed=$(printf '%s\n' "$planned" | sed -n 's/^Inst \([^ ]*\) \[.*/\1/p')
    if [ -n "$changed" ]; then echo "error: other versions are installed: $(echo $changed)" >&2; return 1; fi
}
wanted=""
for name in $NAMES; do
    if [ "$name" = containerd ]; then
        apt-cache show containerd.io >/dev/null 2>&1 && name=containerd.io
    fi
    wanted="$wanted $name"
done
fresh=$(plan $wanted 2>/dev/null) || { apt-get -q update; fresh=$(plan $wanted) || exit 1; }
if entry packages; then
    printf '%s\n' $fresh > "$new/packages"
    cat > "$new/run" <<'UNDO'
dpkg --configure -a || true
for name in $(cat "$HERE/packages"); do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)
    case "$status" in ''|not-installed) ;; *) there="${there:-} $name" ;; esac
done
if [ -n "${there:-}" ]; then
    apt-mark unhold $there >/dev/null 2>&1 || true
    gone=$(apt-get -s purge $there | sed -n 's/^\(Remv\|Purg\) \([^ ]*\).*/\2/p' | sort -u)
    for name in $gone; do
        grep -qxF "$name" "$HERE/packages" || needing="${needing:-} $name"
    done
    if [ -n "${needing:-}" ]; then
        echo "error: packages that were installed since need ours:$needing; remove them first" >&2
        exit 1
    fi
    apt-get -q -y -o DPkg::Lock::Timeout=120 purge $there
fi
UNDO
    close_entry
else
    for seen in "$LB"/undo/[0-9]*-packages; do
        printf '%s\n' $fresh >> "$seen/packages"
        sync "$seen/packages" 2>/dev/null || sync
    done
fi
apt-get install $options $wanted
"""
    + APT_END
)

# dnf is asked what it would bring along, and that is recorded before it does: exactly this goes again. `--setopt` names
# what dnf 4 and 5 call differently as an option. Keys that sign packages are in rpm's list too.
_DNF_FLAGS = "--setopt=disable_excludes={excludes} --setopt=install_weak_deps=False"
_DNF_PLAN = rf"""
flags="{_DNF_FLAGS.format(excludes="longboat-kubernetes")}"
planned=$(dnf -y $flags --assumeno install $wanted </dev/null 2>&1) || true
planned() {{
    printf '%s\n' "$planned" | awk -v title="^($1).*:\$" '$0 ~ title {{ on = 1; next }} /^[^ ]/ {{ on = 0 }}
        on && /^ [^ ]/ {{ print $1 }}'
}}
fresh=$(planned Installing)
"""
_DNF_REFUSE = r"""
changed=$(planned "Upgrading|Downgrading|Removing|Reinstalling")
[ -z "$changed" ] || fail "error: other versions are installed: $(echo $changed)"
"""
DNF_INSTALL = r"""
for seen in "$LB"/undo/[0-9]*-packages; do
    [ -d "$seen" ] && [ -n "$fresh" ] || continue
    printf '%s\n' $fresh >> "$seen/packages"
    sync "$seen/packages" 2>/dev/null || sync
done
dnf -q -y $flags install $wanted
"""

_DNF = (
    r"""
wanted=""
for name in $NAMES; do
    plain=${name%%=*}
    [ "$plain" != containerd ] || plain=containerd.io
    version=${name#*=}; version=${version%-\*}
    if [ "$name" = "${name#*=}" ]; then wanted="$wanted $plain"; else wanted="$wanted $plain-$version"; fi
done
"""
    + _DNF_PLAN
    + _DNF_REFUSE
    + rf"""
if entry packages; then
    : > "$new/packages"
    cat > "$new/run" <<'UNDO'
for name in $(sort -u "$HERE/packages"); do ! rpm -q "$name" >/dev/null 2>&1 || there="${{there:-}} $name"; done
if [ -n "${{there:-}}" ]; then
    needing=$(rpm -e --test --allmatches $there 2>&1 | sed -n 's/.* is needed by (installed) //p' | sort -u)
    if [ -n "$needing" ]; then
        echo "error: packages that were installed since need ours: $(echo $needing); remove them first" >&2
        exit 1
    fi
    dnf -q -y {_DNF_FLAGS.format(excludes="all,*")} --setopt=clean_requirements_on_remove=False remove $there
fi
UNDO
    close_entry
fi
"""
    + DNF_INSTALL
)

DNF_UPGRADE = _DNF_PLAN + DNF_INSTALL

# Whoever signs may install anything: rpm trusts the key from then on. What it is called there is asked of a list of our
# own, so that it is in the journal before it is in rpm's.
_RPM_KEY = r"""
rm -rf "$LB/rpm-keys"
mkdir -p "$LB/rpm-keys"
rpm --dbpath "$LB/rpm-keys" --import RING
fresh=""
for key in $(rpm --dbpath "$LB/rpm-keys" -qa 'gpg-pubkey*'); do
    rpm -q "$key" >/dev/null 2>&1 || fresh="$fresh $key"
done
rm -rf "$LB/rpm-keys"
if [ -n "$fresh" ]; then
    if entry ENTRY; then
        printf '%s\n' $fresh > "$new/keys"
        cat > "$new/run" <<'UNDO'
for key in $(cat "$HERE/keys"); do ! rpm -q "$key" >/dev/null 2>&1 || rpm -e "$key"; done
UNDO
        close_entry
    fi
    rpm --import RING
fi
"""


def default_repositories(facts: HostFacts, kubernetes: str, *, runtime: bool = True) -> tuple[PackageRepository, ...]:
    """The projects' own: Kubernetes of this minor version, and containerd 2, which distributions do not have yet."""
    minor = minor_of(kubernetes)
    if facts.package_manager == "apt":
        base = "ubuntu" if facts.os_id == "ubuntu" else "debian"
        core = f"https://pkgs.k8s.io/core:/stable:/{minor}/deb/"
        docker = f"https://download.docker.com/linux/{base}"
        suite = f"{facts.os_codename} stable"
        own = (PackageRepository(url=core, key=f"{core}Release.key"),)
        return (*own, PackageRepository(url=docker, key=f"{docker}/gpg", suite=suite)) if runtime else own
    core = f"https://pkgs.k8s.io/core:/stable:/{minor}/rpm/"
    docker = "https://download.docker.com/linux/" + ("fedora" if facts.os_id == "fedora" else "centos")
    repositories = (PackageRepository(url=core, key=f"{core}repodata/repomd.xml.key"),)
    stable = PackageRepository(url=f"{docker}/$releasever/$basearch/stable", key=f"{docker}/gpg")
    return (*repositories, stable) if runtime else repositories


def repositories(spec: ClusterSpec, facts: HostFacts) -> tuple[PackageRepository, ...]:
    """Docker's only where containerd has to come from there: a host that has it may have that repository already."""
    needed = not runtime.is_good(facts)
    minor = minor_of(spec.versions.kubernetes)
    own = (
        msgspec.structs.replace(item, url=item.url.replace("{minor}", minor), key=item.key.replace("{minor}", minor))
        for item in spec.source.repositories
    )
    return tuple(own) or default_repositories(facts, spec.versions.kubernetes, runtime=needed)


def minor_of(version: str) -> str:
    """v1.36 of 1.36.4, as repositories have it in their addresses."""
    return "v" + ".".join(version.split(".")[:2])


def repository(
    spec: ClusterSpec,
    host: HostSpec,
    facts: HostFacts,
    keys: Mapping[str, bytes],
    more: tuple[PackageRepository, ...] = (),
) -> Step | None:
    """`keys`: the content of every key that `repositories` and `more` name."""
    wanted = (*repositories(spec, facts), *more)
    make = _apt_sources if facts.package_manager == "apt" else _dnf_sources
    script = make(wanted, keys)
    title = "add the package repositories " + ", ".join(item.url for item in wanted)
    return Step(host=host.name, name="repository", title=title, script=script)


def _apt_sources(wanted: tuple[PackageRepository, ...], keys: Mapping[str, bytes]) -> str:
    script, lines = "", []
    for number, item in enumerate(wanted):
        key = keys[item.key]
        ring = f"/etc/apt/keyrings/longboat-{number}.{'asc' if key.startswith(b'-----') else 'gpg'}"
        script += put(ring, key)
        lines.append(f"deb [signed-by={ring}] {item.url} {item.suite}\n")
    names = " ".join(f"/var/lib/apt/lists/*{list_name(item.url)}*" for item in wanted)
    # Under a name of its own: a version that comes later has other repositories, whose lists go too.
    entry = f"apt-lists-{hashlib.sha256(names.encode()).hexdigest()[:8]}"
    return script + undo(entry, f"rm -f {names}") + put(APT_LIST, "".join(lines))


def list_name(url: str) -> str:
    """How apt names the files it fetches from there."""
    name = re.sub(r"^[a-z]+://([^/@]*@)?", "", url).rstrip("/").replace(":", "%3a").replace("/", "_")
    if not re.fullmatch(r"[A-Za-z0-9._%+~-]+", name):
        raise InternalError(f"a repository's URL passed that should not: {url!r}")
    return name.replace("%3a", "*")


def _dnf_sources(wanted: tuple[PackageRepository, ...], keys: Mapping[str, bytes]) -> str:
    script, sections = "", []
    for number, item in enumerate(wanted):
        ring = f"/etc/pki/rpm-gpg/longboat-{number}"
        key = keys[item.key]
        script += put(ring, key)
        entry = f"rpm-key-{hashlib.sha256(key).hexdigest()[:8]}"
        script += _RPM_KEY.replace("RING", ring).replace("ENTRY", entry)
        name = "longboat-kubernetes" if number == 0 else f"longboat-{number}"
        held = "exclude=kubelet kubeadm kubectl cri-tools kubernetes-cni\n" if number == 0 else ""
        sections.append(
            f"[{name}]\nname={name}\nbaseurl={item.url}\nenabled=1\ngpgcheck=1\ngpgkey=file://{ring}\n{held}"
        )
    return script + put(DNF_REPO, "\n".join(sections))


def packages(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    """With containerd, unless there is one that is good enough."""
    needs_runtime = not runtime.is_good(facts)
    version = spec.versions.kubernetes
    missing = [name for name in KUBERNETES_PACKAGES if not is_version(facts.package(name), version)]
    client = nfs_client(spec, facts)
    if not missing and not needs_runtime and not client:
        return Kept(host=host.name, name="packages", reason=f"kubelet, kubeadm and kubectl {version} are installed")
    names = [f"{name}={version}-*" for name in missing] + (["containerd"] if needs_runtime else []) + client
    title = f"install {', '.join(name.replace('=', ' ').removesuffix('-*') for name in names)}"
    if spec.source.kind == "files":
        title += f" from {spec.source.location}"
        script = install_script(facts, names, held=HELD, start=_OPTIONS + _FROM_BUNDLE)
        # The packages themselves are sent over SSH first.
        return Step(host=host.name, name="packages", title=title, script=script, kind="packages", timeout_s=1800.0)
    script = install_script(facts, names, held=HELD)
    return Step(host=host.name, name="packages", title=title, script=script, timeout_s=1200.0)


def nfs_client(spec: ClusterSpec, facts: HostFacts) -> list[str]:
    """The package that kubelets mount volumes of the add-on storage with, if it is needed and missing."""
    if "storage" not in spec.addons or spec.storage.kind != "nfs":
        return []
    name = "nfs-common" if facts.package_manager == "apt" else "nfs-utils"
    return [] if facts.package(name) else [name]


def install_script(
    facts: HostFacts, names: Sequence[str] | None, held: Sequence[str] = (), start: str = APT_START
) -> str:
    """Installs `name` or `name=version-*`, with what they need, and holds `held` of it at its version. Without `names`,
    the script before it has set NAMES. `start`: where apt looks for them.
    """
    script = f"NAMES='{' '.join(names)}'\n" if names is not None else ""
    return f"{script}HELD='{' '.join(held)}'\n{start + _APT if facts.package_manager == 'apt' else _DNF}"


def is_version(installed: str, wanted: str) -> bool:
    """1.36.4-1.1 is 1.36.4."""
    return installed == wanted or installed.startswith((f"{wanted}-", f"{wanted}~", f"{wanted}+"))
