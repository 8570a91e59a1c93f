"""Images from registries into one archive, without a container runtime: an OCI layout that `ctr images import` reads.

Of each image the variant for one architecture. Everything is compared with its digest; only what a tag leads to rests
on https. Anonymous: an image behind a login comes from an archive of the user's.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.offline.write import write_tar
from longboat.clusters.small_files import SafeRedirects
from longboat.core.errors import EngineError
from longboat.engines.shared.files import disk, make_folder

TIMEOUT_S = 60.0  # without a byte
ATTEMPTS = 3  # a layer that broke off is asked for again
PAUSES_S = (1.0, 4.0, 16.0)  # before a registry that is busy or being replaced is asked again
MOST_PAUSE_S = 60.0  # registries that limit pulls name the hours until the next one: that is a failure
MOST_MANIFEST = 4 << 20  # as registries have it
_CHUNK = 1 << 20
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
Descriptor = dict[str, Any]


class ImageName(NamedTuple):
    host: str
    repository: str
    tag: str
    """Or a digest."""

    @property
    def url(self) -> str:
        """Plain http on this machine only, as container runtimes have it."""
        scheme = "http" if self.host.partition(":")[0] in ("localhost", "127.0.0.1") else "https"
        return f"{scheme}://{'registry-1.docker.io' if self.host == 'docker.io' else self.host}/v2/{self.repository}"


def parse_image(name: str) -> ImageName:
    plain, _, digest = name.partition("@")
    host, _, rest = plain.partition("/")
    repository, _, tag = rest.partition(":")
    if not rest or not repository or not re.fullmatch(r"[A-Za-z0-9._:/-]+", plain):
        raise EngineError(f"{name}: no full name of an image: registry/name:tag")
    return ImageName(host, repository, digest or tag or "latest")


def pull_images(names: Sequence[str], architecture: str, target: Path, say: Callable[[str], None]) -> None:
    """Write the archive. Raises EngineError with the image's name."""
    blobs = make_folder(target.with_suffix(".blobs"))
    listed = []
    for name in names:
        say(f"longboat: image {name}")
        listed.append(_Pull(name, blobs).run(architecture))
    index = json.dumps({"schemaVersion": 2, "manifests": listed}, sort_keys=True).encode()
    files: dict[str, bytes | FilePart] = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index}
    for file in sorted(blobs.iterdir()):
        files[f"blobs/sha256/{file.name}"] = FilePart(path=file, offset=0, size=file.stat().st_size)
    write_tar(files, target)


class _Pull:
    """One image."""

    def __init__(self, name: str, blobs: Path) -> None:
        self._name, self._image, self._blobs = name, parse_image(name), blobs
        self._token = ""
        self._opener = urllib.request.build_opener(SafeRedirects)

    def run(self, architecture: str) -> Descriptor:
        try:
            return self._pull(architecture)
        except _BROKEN as error:
            raise self._fault(str(getattr(error, "reason", None) or error)) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._fault(f"its description is not understood: {error}") from None

    def _fault(self, reason: str) -> EngineError:
        return EngineError(
            f"{self._name}: it cannot be pulled: {reason}",
            hint="source.images: FILE takes images from an archive of yours instead",
        )

    def _pull(self, architecture: str) -> Descriptor:
        kind, body = self._manifest(self._image.tag)
        if kind in _INDEXES:
            variants = [entry for entry in json.loads(body)["manifests"] if _is_for(entry, architecture)]
            if not variants:
                raise self._fault(f"there is no variant for linux on {architecture}")
            kind, body = self._manifest(variants[0]["digest"])
        manifest = json.loads(body)
        for descriptor in (manifest["config"], *manifest["layers"]):
            self._blob(descriptor["digest"], int(descriptor["size"]))
        digest = hashlib.sha256(body).hexdigest()
        with disk(f"write {self._blobs}"):
            (self._blobs / digest).write_bytes(body)
        annotations = {"io.containerd.image.name": self._name}
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(body), "annotations": annotations}

    def _manifest(self, reference: str) -> tuple[str, bytes]:
        with self._open(f"manifests/{reference}", {"Accept": _ACCEPT}) as answer:
            body = answer.read(MOST_MANIFEST + 1)
            kind = str(answer.headers.get_content_type())
        if _DIGEST.fullmatch(reference) and f"sha256:{hashlib.sha256(body).hexdigest()}" != reference:
            raise self._fault(f"{reference} has another content")
        if kind not in (*_INDEXES, *_MANIFESTS) or len(body) > MOST_MANIFEST:
            raise self._fault(f"it is of a kind that is not known: {kind[:80]}")
        return kind, body

    def _blob(self, digest: str, size: int) -> None:
        if not _DIGEST.fullmatch(digest):
            raise self._fault("a digest is not understood")
        target = self._blobs / digest.removeprefix("sha256:")
        for attempt in range(ATTEMPTS):
            if target.is_file():
                return
            try:
                with self._open(f"blobs/{digest}", {}) as answer:
                    self._save(answer, target, size)
            except _BROKEN:
                if attempt == ATTEMPTS - 1:
                    raise
        if not target.is_file():
            raise self._fault(f"{digest} arrives with another content")

    def _save(self, answer: IO[bytes], target: Path, size: int) -> None:
        """Under its name only if it is what its digest says."""
        partial, digest, left = target.with_suffix(".part"), hashlib.sha256(), size
        with disk(f"write {partial}"):
            with open(partial, "wb") as file:
                while left >= 0 and (data := answer.read(_CHUNK)):
                    digest.update(data)
                    file.write(data)
                    left -= len(data)
            if digest.hexdigest() == target.name:
                partial.rename(target)
            else:
                partial.unlink()

    def _open(self, path: str, headers: Mapping[str, str], *, is_renewed: bool = False) -> Any:
        """With a token where the registry asks for one. Tokens expire: each request may renew it once."""
        try:
            return self._ask(f"{self._image.url}/{path}", headers)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            error.close()
            if error.code != 401 or is_renewed or not challenge.lower().startswith("bearer "):
                raise self._fault(f"{self._image.host} answers {error.code} {error.reason}") from None
        self._token = ""
        self._token = self._get_token(challenge)
        return self._open(path, headers, is_renewed=True)

    def _ask(self, url: str, headers: Mapping[str, str]) -> Any:
        request = urllib.request.Request(url, headers={"User-Agent": "longboat", **headers})
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        for pause_s in PAUSES_S:
            try:
                return self._opener.open(request, timeout=TIMEOUT_S)
            except urllib.error.HTTPError as error:
                if error.code != 429 and error.code < 500:
                    raise
                wanted = error.headers.get("Retry-After", "")
                error.close()
                time.sleep(min(float(wanted), MOST_PAUSE_S) if re.fullmatch("[0-9]{1,6}", wanted) else pause_s)
        return self._opener.open(request, timeout=TIMEOUT_S)

    def _get_token(self, challenge: str) -> str:
        """Registries give one to everybody for what is public."""
        fields = dict(re.findall(r'([a-z]+)="([^"]*)"', challenge))
        realm = fields.pop("realm", "")
        if not realm.startswith(f"{self._image.url.partition(':')[0]}://"):
            raise self._fault("it asks for a login at a place that is not safe")
        query = urllib.parse.urlencode({name: fields[name] for name in ("service", "scope") if name in fields})
        with self._ask(f"{realm}?{query}", {}) as answer:
            body = json.loads(answer.read(MOST_MANIFEST))
        return str(body.get("token") or body["access_token"])


def _is_for(entry: Descriptor, architecture: str) -> bool:
    platform = entry.get("platform") or {}
    return platform.get("os") == "linux" and platform.get("architecture") == architecture
