from __future__ import annotations

from typing import Any

import pytest

from longboat.core.errors import Refused
from longboat.engines.kubernetes.submit.resume import find_checkpoint

NOBODY: Any = None


@pytest.mark.parametrize("url", ["s3://bucket/team/train-01234567", "gs://bucket/x/step-7", "az://box/x/"])
def test_an_address_is_left_to_the_pods_which_have_the_credentials(url: str) -> None:
    assert find_checkpoint(NOBODY, url, None) == url.rstrip("/")


def test_an_address_that_means_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="no name of a bucket"):
        find_checkpoint(NOBODY, "s3:///x", None)
    assert find_checkpoint(NOBODY, None, None) is None
