"""Rules of the texts in a cluster file of a cloud: regions, zones, machine types, ids, tags. They reach templates, URLs
and files, so each has a pattern.
"""

from __future__ import annotations

import ipaddress
import re

from longboat.core.words import nearest

REGION = r"[a-z]{2}(-[a-z]{3,12}){1,2}-[1-9]"
ZONE = REGION + r"[a-z]"
MACHINE = r"[a-z][a-z0-9]{0,11}(-[a-z0-9]{1,12})?\.[a-z0-9-]{1,20}"
VPC = r"vpc-([0-9a-f]{8}|[0-9a-f]{17})"
SUBNET = r"subnet-([0-9a-f]{8}|[0-9a-f]{17})"
EFS = r"new|fs-([0-9a-f]{8}|[0-9a-f]{17})"
GROUP = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"
RESERVATION = r"cr-([0-9a-f]{8}|[0-9a-f]{17})"
VERSION = r"1\.[0-9]{2}"
TAG_KEY = r"(?![aA][wW][sS]:)[A-Za-z0-9 _.:/=+@-]{1,128}"
_TAG_VALUE = re.compile(r"[A-Za-z0-9 _.:/=+@-]{0,256}")

REGIONS = (
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "ca-west-1", "mx-central-1", "sa-east-1"),
    *("eu-central-1", "eu-central-2", "eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1", "eu-south-1", "eu-south-2"),
    *("af-south-1", "il-central-1", "me-central-1", "me-south-1", "us-gov-east-1", "us-gov-west-1"),
    *("cn-north-1", "cn-northwest-1"),
    *("ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-south-2"),
    *("ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5", "ap-southeast-7"),
)
"""As of 2025, to notice misspellings; an unknown one that looks like none of these is accepted."""


def region_fault(text: str) -> str | None:
    """Why a region is probably misspelt. A region that is newer than the list is not refused."""
    if text in REGIONS:
        return None
    area = text.rpartition("-")[0]
    if any(area == known.rpartition("-")[0] for known in REGIONS):
        same = [known for known in REGIONS if known.rpartition("-")[0] == area]
        return f"no region {text} is known; {area} has {', '.join(same)}"
    near = nearest(text, REGIONS)
    return f"no region {text} is known; did you mean {near[0]}?" if near else None


def cidr_fault(text: str) -> str | None:
    try:
        ipaddress.IPv4Network(text)
    except ValueError:
        return f"found {text[:60]!r}, expected an IPv4 network such as 192.0.2.0/24"
    return None


def vpc_fault(text: str) -> str | None:
    """Why these cannot be the addresses of a network: AWS has /16 to /28, and each zone needs room for its pods."""
    if fault := cidr_fault(text):
        return fault
    network = ipaddress.IPv4Network(text)
    if not 16 <= network.prefixlen <= 20:
        return f"{text}: expected a network from /16 to /20, each node and pod has an address of it"
    return None if network.is_private else f"{text} is not private, expected a network such as 10.0.0.0/16"


def tag_fault(text: str) -> str | None:
    if _TAG_VALUE.fullmatch(text):
        return None
    return "expected the value of a tag: letters, digits, blanks and _.:/=+@-, 256 at most"
