"""A host's packet filter: the ports that it lets in, and whether it forwards what pods send. Pure, with the awk for it.

ufw and firewalld are asked for their own lists. Rules that somebody wrote for nftables or iptables are read chain by
chain: only chains that drop what no rule accepts are in the way.
"""

from __future__ import annotations

import ipaddress
import re

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Lines = dict[str, list[str]]

# Reads `nft list ruleset`. A chain with a hook denies by its policy or by its last rule. Chains that iptables keeps in
# nftables are left out: a rule of another origin in them makes iptables refuse to work with the table.
CLOSED_CHAINS = r"""
/^table / { family = $2; table = $3; closed = 0; count = 0; next }
/^[ \t]+chain / { chain = $2; hook = "any"; denies = 0; last = ""; begin = count; next }
chain != "" && /^[ \t]+}/ {
    if (last ~ /^(counter packets [0-9]+ bytes [0-9]+ )?(drop|reject)( |$)/) denies = 1
    foreign = family !~ /^(ip|ip6|inet)$/ || (table == "filter" && chain ~ /^[A-Z]+$/ && family != "inet")
    if (denies && !foreign && (hook == "input" || hook == "forward")) {
        print "closed " hook " " family " " table " " chain
        closed = 1
    } else if (hook != "any") count = begin
    chain = ""
    next
}
chain != "" {
    sub(/^[ \t]+/, "")
    if (/^type [a-z]+ hook /) {
        hook = $2 == "filter" ? $4 : "other"
        if (/policy drop/) denies = 1
    } else if ($0 != "") {
        last = $0
        if (/accept/) rules[count++] = hook " " $0
    }
    next
}
/^}/ { for (i = 0; closed && i < count; i++) print "rule " rules[i] }
"""
"""Prints `closed HOOK FAMILY TABLE CHAIN` for each, and `rule HOOK RULE` for rules of those tables that accept; HOOK
`any`: of a chain that others jump to.
"""

ALL_PORTS = "Anywhere"


def firewall(lines: Lines, values: dict[str, str]) -> str:
    """ufw, firewalld, nftables, iptables, or empty. Lines of the probe by their keys; `values`: the last of each."""
    if name := values.get("firewall", ""):
        return name
    if any(line.startswith("closed ") for line in lines["nft"]):
        return "nftables"
    return "iptables" if _iptables_denies(lines["iptables"]) else ""


def open_ports(lines: Lines) -> tuple[str, ...]:
    """Ports that ufw (`6443/tcp  ALLOW  Anywhere`), firewalld (`6443/tcp`, a service or a rich rule), nftables
    (`dport`) or iptables (`--dport`) allow, for everybody or for some.
    """
    ports = []
    for line in lines["opened"]:
        rich = re.search(r'\bport port="([0-9]+(?:-[0-9]+)?)" protocol="(tcp|udp)" accept', line)
        fields = [f"{rich[1]}/{rich[2]}"] if rich else line.split()
        # ufw has lines of what goes out, of what is forwarded and of IPv6 alone, too.
        is_other = {"OUT", "FWD", "(v6)"} & set(fields[1:4])
        if fields and not is_other and (len(fields) == 1 or "ALLOW" in fields[1:3]):
            ports.append(fields[0].replace("-", ":", 1) if "/" in fields[0] else fields[0])
    incoming = [line for line in lines["nft"] if re.match(r"rule (input|any) ", line)]
    for line in (*incoming, *lines["iptables"]):
        match = re.search(r"\b(tcp|udp)\b.*?dports? (?:\{([^}]*)\}|([0-9,:-]+))", line)
        if match and re.search(r"accept|ACCEPT", line):
            names = re.findall(r"[0-9]+(?:[:-][0-9]+)?", match[2] or match[3])
            ports += [f"{name.replace('-', ':')}/{match[1]}" for name in names]
    filtered = any(line.startswith("closed input ") for line in lines["nft"]) or _iptables_denies(lines["iptables"])
    if not lines["opened"] and not filtered and any(line.startswith("closed ") for line in lines["nft"]):
        ports.append(ALL_PORTS)
    return tuple(dict.fromkeys(ports))


def forwarded(lines: Lines) -> tuple[str, ...] | None:
    """Networks whose packets are forwarded; None: everybody's, as far as nftables or firewalld is asked."""
    if lines["zone"]:
        return _forwarded_by_firewalld(lines)
    if not any(line.startswith("closed forward ") for line in lines["nft"]):
        return None
    accepted = r"rule (?:forward|any) ip6? saddr (?:\{([^}]*)\}|([^ ]+)) (?:counter .*)?accept"
    matches = [match for line in lines["nft"] if (match := re.match(accepted, line))]
    return tuple(name for match in matches for name in re.split(r"[, ]+", (match[1] or match[2]).strip()))


def _forwarded_by_firewalld(lines: Lines) -> tuple[str, ...] | None:
    """Addresses of zones to which every zone's packets go, and whose packets go everywhere. Zones and policies are a
    name each, then indented lines such as `sources: 10.244.0.0/16` and `target: ACCEPT`.
    """
    default = next((line.split()[-1] for line in lines["zone"] if line.startswith("default ")), "")
    if default == "trusted":
        return None
    accepting = [policy for policy in _blocks(lines["policy"]).values() if policy.get("target") == ["ACCEPT"]]
    ways = [(set(policy.get("ingress-zones", ())), set(policy.get("egress-zones", ()))) for policy in accepting]
    networks: list[str] = []
    for zone, values in _blocks(lines["zone"]).items():
        receives = any({"ANY", default} & come and {"ANY", zone} & go for come, go in ways)
        sends = zone == "trusted" or any({"ANY", zone} & come and "ANY" in go for come, go in ways)
        networks += values.get("sources", ()) if receives and sends else ()
    return tuple(networks)


def _blocks(lines: list[str]) -> dict[str, dict[str, list[str]]]:
    """Words of each field of each block, as firewall-cmd prints them."""
    blocks: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        if line[:1] not in ("", " "):
            fields = blocks.setdefault(line.split()[0], {})
        elif blocks and ":" in line:
            key, _, value = line.strip().partition(":")
            fields[key] = value.split()
    return blocks


def is_forwarded(network: str, accepted: tuple[str, ...] | None) -> bool:
    """Whether one entry of `forwarded` covers the whole network."""
    wanted = _network(network)
    if accepted is None or wanted is None:
        return True
    return any(
        other is not None and other.version == wanted.version and wanted.subnet_of(other)  # type: ignore[arg-type]
        for other in map(_network, accepted)
    )


def _iptables_denies(rules: list[str]) -> bool:
    """By its policy, or by a last rule without conditions, as Red Hat's own file has it."""
    added = [line.strip() for line in rules if line.startswith("-A ")]
    by_policy = any(re.match(r"-P INPUT (DROP|REJECT)", line) for line in rules)
    return by_policy or bool(added and re.match(r"-A INPUT -j (DROP|REJECT)", added[-1]))


def _network(text: str) -> IpNetwork | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
