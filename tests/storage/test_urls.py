from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.errors import Refused
from longboat.storage.urls import ObjectUrl, check_import, object_url


@pytest.mark.parametrize(
    ("url", "found", "is_prefix"),
    [
        ("s3://bucket/a/b.tar", ObjectUrl("s3", "bucket", "a/b.tar"), False),
        ("gs://bucket/a%20b%2Fc%25", ObjectUrl("gs", "bucket", "a b/c%"), False),
        ("az://box/%C3%BC", ObjectUrl("az", "box", "ü"), False),
        ("s3://bucket/a/", ObjectUrl("s3", "bucket", "a/"), True),
        ("s3://bucket/", ObjectUrl("s3", "bucket", ""), True),
        ("s3://bucket", ObjectUrl("s3", "bucket", ""), True),
    ],
)
def test_what_a_url_means(url: str, found: ObjectUrl, is_prefix: bool) -> None:
    assert object_url(url) == found
    assert found.is_prefix is is_prefix


@given(st.text(min_size=1, max_size=40))
def test_an_object_is_shown_as_a_url_that_means_it(key: str) -> None:
    shown = str(ObjectUrl("s3", "bucket", key))
    assert shown.isascii() and shown.isprintable() and " " not in shown
    assert object_url(shown).key == key


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "s3://b/x", "s3://../x", "s3://a b/x", "s3://id:canary@bucket/x", "az://box/x?sig=canary"],
)
def test_what_means_nothing_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(Refused) as caught:
        object_url(url)
    assert "canary" not in caught.value.message


def test_one_hash_is_for_one_object() -> None:
    check_import("s3://bucket/x", "0" * 64)
    check_import("s3://bucket/x/", None)
    check_import("https://example.org/x/", "0" * 64)
    with pytest.raises(Refused, match="sha256"):
        check_import("s3://bucket/x/", "0" * 64)
