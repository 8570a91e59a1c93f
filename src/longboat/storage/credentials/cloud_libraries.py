"""Credentials that only the clouds' own libraries find: SSO and programs of AWS, key files of Google, `az login`.

For commands on the submitter's machine, where `longboat[aws]`, `[gcp]` or `[azure]` is installed. The launcher does not
carry this file: in pods the standard library does. Only files and logins of this very process are used, never those
that a job's variables name: a profile may name a program to start. Values are in no message.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from datetime import timezone
from typing import Any

from longboat.core.errors import EngineError
from longboat.storage.credentials.aws import home_file
from longboat.storage.credentials.oauth_token import Token
from longboat.storage.credentials.sigv4 import AwsKeys

_LIFE_S = 600.0
"""Keys of a profile are asked for anew after ten minutes: botocore renews them, and does not say when they end."""
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_AZURE_SCOPE = "https://storage.azure.com/.default"
_AWS_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
_LOGIN_ENDED = ("UnauthorizedSSOTokenError", "SSOTokenLoadError", "TokenRetrievalError")


AS_LAUNCHERS = "LONGBOAT_CREDENTIALS_AS_LAUNCHERS"
"""In an environment: use none of these, for what a launcher has to go on with, which has them not."""


def _is_ours(environment: Mapping[str, str], files: Mapping[str, str]) -> bool:
    return AS_LAUNCHERS not in environment and all(
        home_file(environment, name, usual) == home_file(os.environ, name, usual) for name, usual in files.items()
    )


def profile_keys(environment: Mapping[str, str]) -> AwsKeys | None:
    """Keys of the profile that the environment names. None: botocore is not here, or the files are not ours."""
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError:
        return None
    if not _is_ours(environment, _AWS_FILES):
        return None
    name = environment.get("AWS_PROFILE") or "default"
    failure = f"the AWS profile {name} gives no keys"
    logging.getLogger("botocore").setLevel(logging.ERROR)  # else it shows the traceback of a login that has ended
    try:
        credentials = botocore.session.Session(profile=name).get_credentials()
        keys = credentials.get_frozen_credentials() if credentials is not None else None
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        hint = f"aws sso login --profile {name}" if type(error).__name__ in _LOGIN_ENDED else None
        raise EngineError(f"{failure}: {' '.join(str(error).split())[:200]}", hint=hint) from None
    except (OSError, ValueError) as error:  # a program that is not there, or whose answer is none
        raise EngineError(f"{failure}: {getattr(error, 'strerror', None) or 'its program gives no answer'}") from None
    return AwsKeys(keys.access_key, keys.secret_key, keys.token or None, time.time() + _LIFE_S) if keys else None


def key_file_token(environment: Mapping[str, str], variable: str, usual: str) -> Token | None:
    """A token by the file that the variable names, of whatever type. None: no google-auth, or the file is not ours."""
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        return None
    if not _is_ours(environment, {variable: usual}):
        return None
    credentials: Any
    try:
        credentials, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])
        credentials.refresh(google.auth.transport.requests.Request())
    except google.auth.exceptions.GoogleAuthError as error:
        path = home_file(environment, variable, usual)
        reason = "Google does not take it" if isinstance(error, google.auth.exceptions.RefreshError) else "it is none"
        raise EngineError(f"{path}: no token can be had with it: {reason}") from None
    expiry = credentials.expiry
    return Token(
        str(credentials.token), expiry.replace(tzinfo=timezone.utc).timestamp() if expiry else time.time() + _LIFE_S
    )


def login_token(environment: Mapping[str, str]) -> Token | None:
    """The token of `az login`, and of whatever else azure-identity knows. None: there is none, or it is not here."""
    try:
        from azure.core.exceptions import ClientAuthenticationError
        from azure.identity import CredentialUnavailableError, DefaultAzureCredential
    except ImportError:
        return None
    if not _is_ours(environment, {}):
        return None
    logging.getLogger("azure").setLevel(logging.ERROR)  # else it tells every way that it tried
    try:
        # The machine's identity has been asked for before.
        given = DefaultAzureCredential(exclude_managed_identity_credential=True).get_token(_AZURE_SCOPE)
    except (ClientAuthenticationError, CredentialUnavailableError, ValueError):
        return None
    return Token(given.token, float(given.expires_on))
