"""What `up` does not make yet is refused with all of it named."""

from __future__ import annotations

import pytest

from longboat.clusters.spec import Network
from longboat.clusters.support import check_supported, unsupported
from longboat.core.errors import Refused
from tests.clusters.worlds import cluster


def test_what_is_made_passes() -> None:
    check_supported(cluster(addons=("controller",), network=Network(kind="manifest", manifest="x.yaml")))


def test_all_of_it_is_named() -> None:
    spec = cluster(
        addons=("controller", "kueue"),
        network=Network(kind="flannel"),
    )
    assert unsupported(spec) == ["network: flannel"]
    with pytest.raises(Refused, match="network: flannel"):
        check_supported(spec)
