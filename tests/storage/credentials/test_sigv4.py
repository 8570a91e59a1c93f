"""The signatures that AWS publishes with its examples and with its test suite."""

from __future__ import annotations

import hashlib
from calendar import timegm

import pytest

from longboat.storage.credentials.sigv4 import EMPTY, AwsKeys, Signed, canonical_request, signed_headers

HOST = "examplebucket.s3.amazonaws.com"
S3_KEYS = AwsKeys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
S3_TIME = timegm((2013, 5, 24, 0, 0, 0))
WELCOME = hashlib.sha256(b"Welcome to Amazon S3.").hexdigest()

EXAMPLES = [
    (
        Signed("GET", HOST, "/test.txt", [], {"Range": "bytes=0-9"}, EMPTY),
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
    (
        Signed(
            "PUT",
            HOST,
            "/test%24file.text",
            [],
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            WELCOME,
        ),
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    ),
    (
        Signed("GET", HOST, "/", [("lifecycle", "")], {}, EMPTY),
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    ),
    (
        Signed("GET", HOST, "/", [("prefix", "J"), ("max-keys", "2")], {}, EMPTY),
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    ),
]


@pytest.mark.parametrize(("request_", "signature"), EXAMPLES)
def test_examples_of_s3(request_: Signed, signature: str) -> None:
    found = signed_headers(request_, S3_KEYS, region="us-east-1", service="s3", now=S3_TIME)
    assert found["Authorization"].endswith(f"Signature={signature}")
    assert "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, " in found["Authorization"]
    assert found["x-amz-content-sha256"] == request_.payload and found["x-amz-date"] == "20130524T000000Z"


def test_the_suite_orders_a_query_by_name() -> None:
    request = Signed("GET", "example.amazonaws.com", "/", [("Param2", "value2"), ("Param1", "value1")], {}, EMPTY)
    keys = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    now = timegm((2015, 8, 30, 12, 36, 0))
    found = signed_headers(request, keys, region="us-east-1", service="service", now=now)
    assert found["Authorization"].endswith("b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500")
    assert "x-amz-content-sha256" not in found


def test_a_token_is_signed_too_and_keys_are_not_shown() -> None:
    keys = AwsKeys("id", "canary", token="lent")
    found = signed_headers(EXAMPLES[0][0], keys, region="r", service="s3", now=S3_TIME)
    assert found["x-amz-security-token"] == "lent" and "x-amz-security-token" in found["Authorization"]
    assert "canary" not in repr(keys) + str(found)


def test_blanks_in_a_value_count_once() -> None:
    names, text = canonical_request(Signed("GET", "h", "/", [], {"B": "  a   b ", "a": "1"}, EMPTY))
    assert names == "a;b" and "a:1\nb:a b\n" in text
