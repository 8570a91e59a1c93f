"""Files behind URLs: redirects never leave https, not even on the way."""

from __future__ import annotations

import email.message
import io
import urllib.error
import urllib.request

import pytest

from longboat.clusters.small_files import SafeRedirects


def follow(url: str, *hops: str) -> str:
    """Where a chain of redirects ends."""
    request = urllib.request.Request(url)
    for hop in hops:
        following = SafeRedirects().redirect_request(request, io.BytesIO(), 302, "", email.message.Message(), hop)
        assert following is not None
        request = following
    return request.full_url


def test_a_hop_over_http_is_refused_though_the_chain_ends_with_https() -> None:
    with pytest.raises(urllib.error.URLError, match="the server leads away from https"):
        follow("https://a.example/key", "http://b.example/key", "https://c.example/key")


def test_redirects_to_https_are_followed() -> None:
    assert follow("https://a.example/x", "https://b.example/x") == "https://b.example/x"
    assert follow("http://a.example/x", "https://b.example/x") == "https://b.example/x"
    assert follow("http://a.example/x", "http://b.example/x") == "http://b.example/x"
    with pytest.raises(urllib.error.URLError):
        follow("http://a.example/x", "ftp://b.example/x")
