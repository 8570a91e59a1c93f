"""A dashboard over a real embedded engine in a folder of its own, and a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

from tests.storage.realstores import Unavailable
from tests.web.browser import opened_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        with opened_browser() as opened:
            yield opened
    except Unavailable as reason:
        pytest.skip(str(reason))
