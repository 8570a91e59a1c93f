"""Answers of an API server, as the doctor reads them."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.doctor.observe.cluster import failing_checks
from longboat.kubeapi.answers import error_of


class Answering:
    """A client whose server fails with a page."""

    def __init__(self, status: int, page: str) -> None:
        self.status, self.page = status, page

    def request(self, *_: Any, **__: Any) -> bytes:
        if self.status == 200:
            return self.page.encode()
        raise error_of(self.status, self.page.encode(), "GET /readyz")


@pytest.mark.parametrize(
    ("status", "page", "wanted"),
    [
        (200, "[+]ping ok\n", ()),
        (
            500,
            "[+]ping ok\n" * 50 + "[-]etcd failed: x\n[-]poststarthook/rbac failed\n",
            ("etcd", "poststarthook/rbac"),
        ),
        (500, "[-]etcd failed: x\n[+]ping ok\n", ("etcd",)),
        (500, "<html>", ("the API server cannot answer now (500): <html>",)),
    ],
)
def test_checks_of_the_server_that_fail(status: int, page: str, wanted: tuple[str, ...]) -> None:
    assert failing_checks(Answering(status, page)) == wanted  # type: ignore[arg-type]
