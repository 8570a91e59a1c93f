"""AWS credentials, first found: variables, a web identity, the profile in ~/.aws, the container's
server, the machine's metadata. Values are in no message.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import json
import os
import time
import urllib.parse
from calendar import timegm
from typing import TYPE_CHECKING

from longboat.core.errors import EngineError
from longboat.storage.credentials.sigv4 import AwsKeys
from longboat.storage.http import HttpExchange, HttpRejected, HttpRequest, children, parse_xml, text_of
from longboat.storage.transfers import BROKEN, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from longboat.storage.transfers import Transfer

METADATA = "http://169.254.169.254"
CONTAINER = "http://169.254.170.2"
_TRUSTED_HOSTS = ("localhost", "127.0.0.1", "::1", "169.254.170.2", "169.254.170.23", "fd00:ec2::23")
_NEAR_S = 2.0  # a server on this very machine answers at once, or is not there
_NOT_OURS = ("sso_session", "sso_start_url", "credential_process", "source_profile", "credential_source")
_EXPORT = (
    "with pip install 'longboat[aws]' commands on this machine find them; for runs, "
    'eval "$(aws configure export-credentials --format env)" gives them to this shell'
)


def home_file(environment: Mapping[str, str], variable: str, default: str) -> str:
    """A file that a variable names, else one in the home."""
    given = environment.get(variable) or default
    home = environment.get("HOME") or os.path.expanduser("~")
    return os.path.join(home, given[2:]) if given.startswith("~/") else given


def profile(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of the chosen profile: those of the config file, and over them those of the credentials file."""
    name = environment.get("AWS_PROFILE") or "default"
    config = _section(home_file(environment, "AWS_CONFIG_FILE", "~/.aws/config"), [f"profile {name}", name])
    return {**config, **_section(home_file(environment, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), [name])}


def _section(path: str, names: list[str]) -> dict[str, str]:
    import configparser

    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except OSError:
        return {}
    except (configparser.Error, UnicodeDecodeError):
        raise EngineError(f"{path}: not a file of AWS profiles") from None  # the reason may quote a secret
    return next((dict(parser[name]) for name in names if parser.has_section(name)), {})


def region_of(environment: Mapping[str, str], settings: Mapping[str, str]) -> str | None:
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or settings.get("region")


def find_keys(environment: Mapping[str, str], transfer: Transfer) -> AwsKeys | None:
    """None: there are none, and only public objects can be had. Raises EngineError for those that cannot be used."""
    key_id, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if key_id and secret:
        return AwsKeys(key_id, secret, environment.get("AWS_SESSION_TOKEN") or None)
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        return _web_identity(environment, transfer)
    settings = profile(environment)
    if settings.get("aws_access_key_id") and settings.get("aws_secret_access_key"):
        token = settings.get("aws_session_token") or None
        return AwsKeys(settings["aws_access_key_id"], settings["aws_secret_access_key"], token)
    unknown = next((name for name in _NOT_OURS if name in settings), None)
    if unknown is not None:
        return _of_library(environment, unknown)
    return _of_container(environment) or _of_machine(environment)


def _of_library(environment: Mapping[str, str], way: str) -> AwsKeys:
    """By botocore where it is: not in pods, which do not carry the module that asks it."""
    name = environment.get("AWS_PROFILE") or "default"
    failure = EngineError(f"the AWS profile {name} gets its keys by {way}, which is not done here", hint=_EXPORT)
    try:
        from longboat.storage.credentials.cloud_libraries import profile_keys
    except ImportError:
        raise failure from None
    keys = profile_keys(environment)
    if keys is None:
        raise failure
    return keys


def _web_identity(environment: Mapping[str, str], transfer: Transfer) -> AwsKeys:
    path, role = environment["AWS_WEB_IDENTITY_TOKEN_FILE"], environment["AWS_ROLE_ARN"]
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except OSError as error:
        raise EngineError(f"AWS_WEB_IDENTITY_TOKEN_FILE: {path}: {error.strerror}") from None
    region = region_of(environment, {}) or "us-east-1"
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    given = environment.get("AWS_ENDPOINT_URL_STS") or environment.get("AWS_ENDPOINT_URL")
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": environment.get("AWS_ROLE_SESSION_NAME") or "longboat",
        "WebIdentityToken": token,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    url = (given or f"https://sts.{region}.{suffix}").rstrip("/") + "/"
    request = HttpRequest("POST", url, headers, urllib.parse.urlencode(form).encode())
    exchange = HttpExchange(ca_bundle=environment.get("AWS_CA_BUNDLE"))
    body = ask_with_retries(exchange, request, transfer, f"credentials of {role} cannot be had")
    try:
        (result,) = children(parse_xml(body), "AssumeRoleWithWebIdentityResult")
        (credentials,) = children(result, "Credentials")
    except ValueError:
        raise EngineError(f"credentials of {role} cannot be had: {url} is no token service") from None
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
    key_id, secret, lent = (text_of(credentials, name) for name in names)
    return AwsKeys(key_id, secret, lent, expiry(text_of(credentials, "Expiration")))


def ask_with_retries(exchange: HttpExchange, request: HttpRequest, transfer: Transfer, failure: str) -> bytes:
    """The answer of a server of credentials. Raises EngineError, which begins with `failure`."""
    pause_s = transfer.backoff_s
    for left in reversed(range(transfer.attempts)):
        try:
            return exchange.ask(request, transfer.timeout_s).body
        except HttpRejected as rejected:
            if rejected.status < 500 and rejected.status != 429 or not left:
                raise EngineError(f"{failure}: {rejected}") from None
        except BROKEN as error:
            if not left:
                raise EngineError(f"{failure}: {reason_of(error, transfer.timeout_s)}") from None
        time.sleep(pause_s)
        pause_s *= 2
    raise EngineError(failure)


def _of_container(environment: Mapping[str, str]) -> AwsKeys | None:
    relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    full = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if not relative and not full:
        return None
    url = CONTAINER + relative if relative else str(full)
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _TRUSTED_HOSTS:
        raise EngineError("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor on this machine")
    headers = {}
    token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    path = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    try:
        if path:
            with open(path, encoding="utf-8") as file:
                token = file.read().strip()
        if token:
            headers["Authorization"] = token
        answer = HttpExchange(direct=True).ask(HttpRequest("GET", url, headers), _NEAR_S)
        return _keys(answer.body)
    except (HttpRejected, ValueError, OSError, KeyError) as error:
        text = error if isinstance(error, HttpRejected) else type(error).__name__
        raise EngineError(f"the container's credentials cannot be had: {text}") from None


def _of_machine(environment: Mapping[str, str]) -> AwsKeys | None:
    """IMDSv2. A machine without it is no error: most machines have none."""
    if (environment.get("AWS_EC2_METADATA_DISABLED") or "").lower() == "true":
        return None
    base = (environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or METADATA).rstrip("/")
    exchange = HttpExchange(direct=True)
    try:
        asked = HttpRequest("PUT", f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}, b"")
        session = {"X-aws-ec2-metadata-token": exchange.ask(asked, _NEAR_S).body.decode()}
        folder = f"{base}/latest/meta-data/iam/security-credentials/"
        role = exchange.ask(HttpRequest("GET", folder, session), _NEAR_S).body.decode().split("\n")[0].strip()
        path = urllib.parse.quote(role)
        return _keys(exchange.ask(HttpRequest("GET", folder + path, session), _NEAR_S).body)
    except (HttpRejected, OSError, ValueError, KeyError, *BROKEN):
        return None


def _keys(body: bytes) -> AwsKeys:
    """Raises ValueError and KeyError for what a server answers that hands out none."""
    try:
        parsed = json.loads(body)
    except RecursionError:
        raise ValueError("nested without end") from None
    if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
        raise ValueError("no credentials")
    return AwsKeys(
        parsed["AccessKeyId"], parsed["SecretAccessKey"], parsed.get("Token"), expiry(parsed.get("Expiration") or "")
    )


def expiry(text: str) -> float | None:
    """Seconds of `2026-11-15T10:00:00Z`, also with fractions."""
    try:
        return float(timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None
