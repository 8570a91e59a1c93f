"""What a host is like, as lines that are compared before `up` and after `down`: the shell that prints them. Pure text.

Only what a person would call a trace: packages, units, files of configuration and programs, interfaces, routes,
firewall chains, mounts, swap, settings of the kernel, users. Not logs, caches and what changes by itself; not the
records of a Longboat that is at work on the host, and what its Python compiles.
"""

from __future__ import annotations

INVENTORY = r"""
{
set +e  # a folder that is missing, or a file that vanishes meanwhile, is no reason to stop
if command -v dpkg-query >/dev/null; then
    dpkg-query -W -f 'package\t${Package} ${Version} ${db:Status-Status}\n' | grep -v ' not-installed$'
    apt-mark showhold | sed 's/^/hold\t/'
elif command -v rpm >/dev/null; then
    rpm -qa --qf 'package\t%{NAME} %{VERSION}-%{RELEASE}\n'
fi
systemctl list-unit-files --no-legend --no-pager 2>/dev/null | awk '{print "unit\t" $1 " " $2}'
for link in /sys/class/net/*; do printf 'interface\t%s\n' "${link##*/}"; done
ip -o -4 route show table all 2>/dev/null | grep -v ' table local ' | sed 's/^/route\t/; s/ *$//'
ip -o rule show 2>/dev/null | sed 's/^/rule\t/'
for family in iptables ip6tables; do
    for variant in nft legacy; do
        command -v $family-$variant-save >/dev/null || continue
        [ $variant = nft ] || grep -q -s . "/proc/net/${family%tables}_tables_names" || continue
        $family-$variant-save 2>/dev/null |
            sed -n "s/^:\([^ ]*\) -.*/chain\t$family-$variant \1/p; s/^-A .* longboat .*/chain\t$family-$variant &/p"
    done
done
if command -v nft >/dev/null; then
    nft list tables 2>/dev/null | sed 's/^/chain\t/'
    nft list ruleset 2>/dev/null | sed -n 's/^[[:space:]]*\(.* comment "longboat".*\)/chain\tnft \1/p'
fi
awk '{print "mount\t" $2 " " $3}' /proc/mounts | grep -v '/run/user/\|/run/credentials'
awk 'NR > 1 {print "swap\t" $1}' /proc/swaps
for name in net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables; do
    value=$(sysctl -n $name 2>/dev/null) && printf 'sysctl\t%s %s\n' "$name" "$value"
done
cut -d: -f1,3 /etc/passwd | sed 's/^/user\t/'
cut -d: -f1,3 /etc/group | sed 's/^/group\t/'
find /etc -xdev -type f ! -path '/etc/ld.so.cache' ! -path '/etc/mtab' ! -name '*-' ! -path '/etc/machine-id' \
    ! -name '*.pyc' -exec sha256sum {} + 2>/dev/null | awk '{h = $1; $1 = ""; print "file\t" substr($0, 2) " " h}'
find /etc -xdev -type l -printf 'link\t%p %l\n' 2>/dev/null
# Names alone: root's home may hold somebody's terabytes.
find /root -xdev -mindepth 1 -maxdepth 1 ! -name '.*history' ! -name .cache ! -name .kube ! -name .longboat \
    -printf 'file\t%p\n' 2>/dev/null
find /etc -xdev -type d -printf 'folder\t%p\n' 2>/dev/null
find /opt /usr/local /var/opt -xdev ! -name '*.pyc' ! -name __pycache__ -printf 'file\t%p\n' 2>/dev/null
find /var/lib -mindepth 1 -maxdepth 1 ! -path /var/lib/longboat \
    ! -path /var/lib/longboat-volumes -printf 'folder\t%p\n' 2>/dev/null
find /var/log -mindepth 1 -maxdepth 1 -type d -printf 'folder\t%p\n' 2>/dev/null
find /var/cache -mindepth 1 -maxdepth 1 -type d -printf 'folder\t%p\n' 2>/dev/null
find /run -mindepth 1 -maxdepth 1 -type d -printf 'folder\t%p\n' 2>/dev/null
find /usr/bin /usr/sbin /usr/lib/systemd /usr/libexec -xdev \( -type f -o -type l \) ! -name '*.pyc' \
    -printf 'program\t%p\n' 2>/dev/null
# A containerd that does not answer may hold somebody's images: that is not the same as none.
if command -v ctr >/dev/null; then
    if [ -S /run/containerd/containerd.sock ] && names=$(timeout 10 ctr namespaces list -q 2>/dev/null); then
        printf '%s\n' "$names" | sed -n 's/^./containerd\tnamespace &/p'
    else
        printf 'containerd\tnot known\n'
    fi
fi
ls -1 /dev 2>/dev/null | grep -i '^nvidia' | sed 's/^/device\t/'
true
} | sort -u
"""
