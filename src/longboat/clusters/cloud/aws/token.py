"""Tokens of EKS: a signed question to STS about who the caller is, which the cluster asks in his place.

Nothing of it is secret beyond its minutes: the URL can be used for that question only, and only with the name of the
cluster in a signed header.
"""

from __future__ import annotations

import base64
import time

from longboat.clouds.aws.session import AwsSession

HEADER = "x-k8s-aws-id"
PREFIX = "k8s-aws-v1."
_URL_S = 60
"""EKS takes a URL for 15 minutes after it was signed, whatever it says; a short one helps nobody else."""
LIFE_S = 14 * 60.0  # a minute less than EKS takes it for: clocks differ


def make_token(session: AwsSession, cluster: str) -> str:
    url = session.identity_url((HEADER, cluster), _URL_S)
    return PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def exec_credential(token: str, now: float) -> dict[str, object]:
    """The answer of a credential plugin."""
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + LIFE_S))
    return {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": until},
    }
