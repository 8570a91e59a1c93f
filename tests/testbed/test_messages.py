"""What the proxy decides by looking at a request: its share, its kind, its sender."""

from __future__ import annotations

from testbed.messages import Head, Request, Share, identity


def test_share_is_exact_and_even() -> None:
    half, rare, all_of_them = Share(0.5), Share(0.1), Share(1.0)
    assert [half.is_chosen() for _ in range(6)] == [False, True] * 3
    assert sum(rare.is_chosen() for _ in range(1000)) == 100
    assert all(all_of_them.is_chosen() for _ in range(10))


def test_watches_are_recognised() -> None:
    assert Request("GET", "/api/v1/pods?labelSelector=a%3Db&watch=true").is_watch
    assert Request("GET", "/api/v1/watch/pods").is_watch
    assert not Request("GET", "/api/v1/pods?labelSelector=watch%3Dtrue").is_watch


def test_a_client_cannot_claim_to_be_somebody_else() -> None:
    certificate = {"subject": ((("organizationName", "a"),), (("organizationName", "b"),), (("commonName", "me"),))}
    claimed = Head("GET / HTTP/1.1", (("host", "x"), ("x-remote-user", "root"), ("x-remote-extra-scopes", "all")))
    assert claimed.replaced(identity(certificate)).fields == (
        ("host", "x"),
        ("x-remote-user", "me"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
    )
    assert identity(None) == {}
