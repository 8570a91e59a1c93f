"""Requests to AWS through botocore: credentials, profiles, SSO, signatures and retries are its own. Errors end here.

The only module of `clouds` that imports it, when the first request is made.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from longboat.clouds.aws.errors import answer_error, local_error
from longboat.core.errors import EngineError

_ATTEMPTS = 6  # standard mode waits up to 20 s between them: a burst of throttling passes
_CONNECT_S = 10.0  # an endpoint that takes longer is not reached from here
_READ_S = 60.0  # the largest lists take some seconds; botocore's own limit too


class NoSuchResource(Exception):
    """What was asked for does not exist."""


class AwsFault(Exception):
    """What AWS answered instead of a result, in its own words; `is_local`: it could not be asked."""

    def __init__(self, code: str, message: str, *, is_local: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.is_local = code, message, is_local


class AwsSession:
    """AWS in one region, as whoever the environment says. `attempts`: of one request, the first included."""

    def __init__(self, region: str, *, attempts: int = _ATTEMPTS) -> None:
        self.region, self._attempts = region, attempts
        self._clients: dict[str, Any] = {}
        self._session: Any = None

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """One request. Raises LongboatError with AWS's words, or NoSuchResource."""
        try:
            return self.ask(service, operation, **arguments)
        except AwsFault as fault:
            raise self._explained(fault, service, operation) from None

    def account(self) -> str:
        """That of the credentials. Raises LongboatError."""
        return str(self.call("sts", "get_caller_identity")["Account"])

    def call_unless(self, code: str, service: str, operation: str, **arguments: Any) -> bool:
        """One request, as `call`; False: AWS answered with this code, which means that it was done before."""
        try:
            self.ask(service, operation, **arguments)
            return True
        except AwsFault as fault:
            if fault.code == code:
                return False
            raise self._explained(fault, service, operation) from None

    def _explained(self, fault: AwsFault, service: str, operation: str) -> Exception:
        if fault.is_local:
            return local_error(fault.code, fault.message, self.region)
        if _is_missing(fault.code, fault.message):
            return NoSuchResource(fault.message)
        return answer_error(fault.code, fault.message, f"{service}:{operation}", self.region)

    def ask(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """One request. Raises AwsFault."""
        library = _library()
        try:
            answer: dict[str, Any] = getattr(self._client(service), operation)(**arguments)
            return answer
        except library.exceptions.ClientError as error:
            details = error.response.get("Error", {})
            raise AwsFault(str(details.get("Code", "")), str(details.get("Message", ""))) from None
        except library.exceptions.BotoCoreError as error:
            raise AwsFault(type(error).__name__, str(error), is_local=True) from None

    def pages(self, service: str, operation: str, key: str, *, raw: bool = False, **arguments: Any) -> Iterator[Any]:
        """Items under `key` of all pages. `raw`: errors are those of `ask`, else those of `call`."""
        ask = self.ask if raw else self.call
        token_in, token_out = _TOKENS.get(operation, ("NextToken", "NextToken"))
        token: str | None = None
        while True:
            answer = ask(service, operation, **arguments, **({token_in: token} if token else {}))
            yield from answer.get(key) or ()
            token = answer.get(token_out)
            if not token:
                return

    def identity_url(self, header: tuple[str, str], expires_s: int) -> str:
        """A URL with which anybody can ask STS who the caller is, for `expires_s`; it must come with the header."""
        library = _library()

        def sign(request: Any, **_more: Any) -> None:
            request.headers[header[0]] = header[1]

        try:
            client = self._client("sts")
            client.meta.events.register("before-sign.sts.GetCallerIdentity", sign)
            url: str = client.generate_presigned_url("get_caller_identity", ExpiresIn=expires_s, HttpMethod="GET")
            return url
        except library.exceptions.BotoCoreError as error:
            raise local_error(type(error).__name__, str(error), self.region) from None

    def _client(self, service: str) -> Any:
        library = _library()
        if service not in self._clients:
            if self._session is None:
                self._session = library.session.get_session()
                self._session.register_component("data_loader", _loader())
                self._session.set_config_variable("sts_regional_endpoints", "regional")  # EKS takes no other
            config = library.config.Config(
                retries={"mode": "standard", "total_max_attempts": self._attempts},
                connect_timeout=_CONNECT_S,
                read_timeout=_READ_S,
                user_agent_extra="longboat",
            )
            try:
                self._clients[service] = self._session.create_client(service, region_name=self.region, config=config)
            except ValueError as error:
                hint = "AWS_ENDPOINT_URL and endpoint_url of ~/.aws/config are addresses, such as https://HOST"
                raise EngineError(f"AWS cannot be asked: {error}", hint=hint) from None
        return self._clients[service]


_TOKENS = {
    "list_nodegroups": ("nextToken", "nextToken"),
    "get_resources": ("PaginationToken", "PaginationToken"),
    "describe_load_balancers": ("Marker", "NextMarker"),
    "describe_file_systems": ("Marker", "NextMarker"),
    "describe_mount_targets": ("Marker", "NextMarker"),
}
"""Operation -> names of the page's token in the request and in the answer, where they are not NextToken."""


def _is_missing(code: str, message: str) -> bool:
    return "NotFound" in code or (code == "ValidationError" and "does not exist" in message)


@functools.cache
def _loader() -> Any:
    """Descriptions of AWS's services, some of them tens of MB: read once, whatever sessions there are."""
    import botocore.loaders

    return botocore.loaders.Loader()


def _library() -> Any:
    try:
        import botocore.config
        import botocore.exceptions
        import botocore.session
    except ImportError:
        raise EngineError(
            "AWS is called through botocore, which is not installed", hint="pip install 'longboat[aws]'"
        ) from None
    return botocore
