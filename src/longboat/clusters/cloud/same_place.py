"""Whether a cluster of a cloud is looked for where it was made from here: the same account and region.

Elsewhere nothing is found, and `down` would call a cluster gone that goes on costing money. Clusters that were made
from another machine are not known here, and not judged.
"""

from __future__ import annotations

import msgspec

from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import file_of, load_spec
from longboat.core.errors import Refused
from longboat.engines.shared.home import Home

ACCOUNTS = {"aws": "account", "azure": "subscription", "gcp": "project"}
_CHOICE = {
    "aws": "AWS_PROFILE chooses other credentials",
    "azure": "AZURE_SUBSCRIPTION_ID chooses another one",
    "gcp": "GOOGLE_CLOUD_PROJECT chooses another one",
}


def check_same_place(spec: ClusterSpec, account: str, home: Home) -> ClusterSpec:
    """The cluster with the account that it is in. Raises Refused where it was made in another place."""
    assert spec.cloud is not None, "a cluster of hosts is in no account"
    known = load_spec(spec.name, home)
    if known is not None:
        _compare(spec, account, known, file=str(file_of(spec.name, home)))
    return msgspec.structs.replace(spec, cloud=msgspec.structs.replace(spec.cloud, account=account))


def _compare(spec: ClusterSpec, account: str, known: ClusterSpec, *, file: str) -> None:
    former, cloud = known.cloud, spec.cloud
    assert cloud is not None
    if former is None or known.kind != spec.kind:
        hint = f"longboat cluster down {spec.name} takes that one down; another name makes another cluster"
        raise Refused(f"a cluster {spec.name} of the kind {known.kind} was made from here", hint=hint)
    if former.account and former.account.lower() != account.lower():  # Azure takes ids in either case
        word = ACCOUNTS[spec.kind]
        message = f"{spec.name} was made in the {word} {former.account}, and these credentials are of {account}"
        raise Refused(message, hint=f"{_CHOICE[spec.kind]}; where the {word} is gone for good, remove {file}")
    if former.region != cloud.region:
        hint = f"longboat cluster down {spec.name} takes that one down; another name makes another cluster"
        raise Refused(f"{spec.name} was made in {former.region}, and the file says {cloud.region}", hint=hint)
