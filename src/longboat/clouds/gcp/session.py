"""Requests to Google Cloud: credentials come from google-auth, as in everybody's tools; plain REST.

The only module of `clouds` that imports it, when the first request is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timezone
from typing import Any
from urllib.parse import urlencode

from longboat.clouds.rest import BROKEN, Body, RestClient, RestFault

COMPUTE = "https://compute.googleapis.com"
CONTAINER = "https://container.googleapis.com"
FILES = "https://file.googleapis.com"
IAM = "https://iam.googleapis.com"
PROJECTS = "https://cloudresourcemanager.googleapis.com"
COMPUTE_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
CONTAINER_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER"
FILES_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_FILE"
IAM_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_IAM"
PROJECTS_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER"
"""Other ones, by the variables of gcloud: a private endpoint, say."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"
NO_LIBRARY = "NoLibrary"
NO_CREDENTIALS = "NoCredentials"
_MOST_PAGES = 1000  # of up to 500 items each; a list that goes on for ever ends here
_LIFE_S = 600.0  # of a token that does not say it


class GoogleSession:
    """Google Cloud as whoever the environment says. `is_patient`: see RestClient."""

    def __init__(self, *, is_patient: bool = False) -> None:
        def client(variable: str, usual: str) -> RestClient:
            return RestClient(os.environ.get(variable) or usual, is_patient=is_patient)

        self._compute = client(COMPUTE_VARIABLE, COMPUTE)
        self._container = client(CONTAINER_VARIABLE, CONTAINER)
        self._files = client(FILES_VARIABLE, FILES)
        self._iam = client(IAM_VARIABLE, IAM)
        self._projects = client(PROJECTS_VARIABLE, PROJECTS)
        self._credentials: Any = None
        self._project = ""

    def project(self) -> str:
        """That of the environment, or the one that the credentials belong to."""
        if not os.environ.get(PROJECT_VARIABLE):
            self._bearer()
        return os.environ.get(PROJECT_VARIABLE) or self._project

    def token(self) -> tuple[str, float]:
        """A token of Google, and until when it is good. Raises RestFault."""
        token = self._bearer()
        expiry = self._credentials.expiry
        return token, expiry.replace(tzinfo=timezone.utc).timestamp() if expiry is not None else time.time() + _LIFE_S

    def container(self, method: str, path: str, body: Body | None = None) -> Body:
        """One request to GKE; `path` without the version. Raises RestFault."""
        return self._container.send(method, f"/v1/{path}", self._bearer(), body=body).body

    def files(self, method: str, path: str, query: Mapping[str, str] = {}) -> Body:
        """One request to Filestore; `path` begins with `projects/`. Raises RestFault."""
        return self._files.send(method, f"/v1/{path}{_query(query)}", self._bearer()).body

    def iam(self, method: str, path: str, body: Body | None = None) -> Body:
        """One request about roles; `path` begins with `projects/`. Raises RestFault."""
        return self._iam.send(method, f"/v1/{path}", self._bearer(), body=body).body

    def projects(self, method: str, path: str, body: Body | None = None) -> Body:
        """One request about a project itself. Raises RestFault."""
        return self._projects.send(method, f"/v3/{path}", self._bearer(), body=body).body

    def compute(self, method: str, path: str, body: Body | None = None, query: Mapping[str, str] = {}) -> Body:
        """One request about machines; `path` begins with `projects/`. Raises RestFault."""
        return self._compute.send(method, f"/compute/v1/{path}{_query(query)}", self._bearer(), body=body).body

    def items(self, method: str, path: str, key: str, query: Mapping[str, str] = {}) -> Iterator[Body]:
        """All pages of a list of machines. Raises RestFault."""
        for answer in _pages(lambda token: self.compute(method, path, query={**query, **token})):
            yield from answer.get(key) or ()

    def scopes(self, path: str) -> Iterator[tuple[str, Body]]:
        """All pages of a list of every zone and region: `zones/Z`, `regions/R` or `global`, and what is there."""
        for answer in _pages(lambda token: self.compute("GET", path, query=token)):
            yield from (answer.get("items") or {}).items()

    def file_instances(self, path: str) -> tuple[list[Body], list[str]]:
        """All instances of Filestore, and places that did not answer. Raises RestFault."""
        answers = [*_pages(lambda token: self.files("GET", path, token))]
        silent = {str(place).rpartition("/")[2] for answer in answers for place in answer.get("unreachable") or ()}
        return [body for answer in answers for body in answer.get("instances") or ()], sorted(silent)

    def _bearer(self) -> str:
        try:
            import google.auth
            import google.auth.exceptions
            import google.auth.transport.requests
        except ImportError:
            message = "Google Cloud is asked with google-auth, which is not installed: pip install 'longboat[gcp]'"
            raise RestFault(401, NO_LIBRARY, message) from None
        try:
            if self._credentials is None:
                self._credentials, project = google.auth.default(scopes=[SCOPE])
                self._project = project or ""
            if not self._credentials.valid:
                self._credentials.refresh(google.auth.transport.requests.Request())
        except google.auth.exceptions.TransportError as error:
            raise RestFault(0, BROKEN, f"no token: {_one_line(error)}") from None
        except google.auth.exceptions.RefreshError as error:  # an expired login, a key that was deleted
            raise RestFault(401, "RefreshError", _one_line(error)) from None
        except google.auth.exceptions.GoogleAuthError as error:
            raise RestFault(401, NO_CREDENTIALS, _one_line(error)) from None
        return str(self._credentials.token)


def _one_line(error: Exception) -> str:
    return " ".join(str(error.args[0] if error.args else error).split())[:300]


def _query(query: Mapping[str, str]) -> str:
    return f"?{urlencode(query)}" if query else ""


def _pages(ask: Callable[[Mapping[str, str]], Body]) -> Iterator[Body]:
    token: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        answer = ask(token)
        yield answer
        if not answer.get("nextPageToken"):
            return
        token = {"pageToken": answer["nextPageToken"]}
