"""Which versions a cluster file gets for what it names."""

from __future__ import annotations

import pytest

from longboat.clusters.spec import Versions
from longboat.clusters.versions import TESTED, combination


@pytest.mark.parametrize("kubernetes", ["", "1.36", "1.36.4"])
def test_the_newest_that_fits(kubernetes: str) -> None:
    assert combination(kubernetes=kubernetes) == TESTED[0] == Versions()


def test_an_older_one_comes_with_what_it_was_tested_with() -> None:
    previous = combination(kubernetes="1.35")
    assert previous == TESTED[1] and previous.pause == "3.10.1"


@pytest.mark.parametrize(
    "named", [{"kubernetes": "1.3"}, {"kubernetes": "1.36.40"}, {"containerd": "1.7"}, {"flannel": "1"}]
)
def test_what_was_never_tested(named: dict[str, str]) -> None:
    assert combination(**named) is None
