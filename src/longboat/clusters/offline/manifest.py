"""The manifest of a software bundle: which files, for which versions, system and architecture, with checksums. Pure.

A bundle is `bundle.json` and the files that it lists: `packages/` (a flat repository of apt), `images.tar`,
`manifests/` of add-ons, `programs/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import BundleError, Refused
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value

FORMAT = 1
MANIFEST, IMAGES, PACKAGES, FLANNELD = "bundle.json", "images.tar", "packages/", "programs/flanneld"
MOST_FILES = 5000  # packages with all they need are some dozens
# Names reach a shell, a URL and a tar header; versions of packages have + and ~.
_PATH = re.compile(r"images\.tar|(packages|programs|manifests)/[A-Za-z0-9][A-Za-z0-9._+~-]{0,199}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,400}")
_SUM = re.compile(r"[0-9a-f]{64}")


class SoftwareFile(Value, frozen=True):
    path: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class SoftwareManifest(Value, frozen=True):
    format: int
    kubernetes: str
    system: str
    """What the packages are for: `debian 12`."""
    architecture: str
    images: tuple[str, ...]
    """References in `images.tar`."""
    files: tuple[SoftwareFile, ...]
    flannel: str = ""

    def file(self, path: str) -> SoftwareFile | None:
        return next((file for file in self.files if file.path == path), None)

    @property
    def packages(self) -> tuple[SoftwareFile, ...]:
        return tuple(file for file in self.files if file.path.startswith(PACKAGES))

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def read_manifest(data: bytes, place: str) -> SoftwareManifest:
    """Parse and validate a bundle's manifest; all values are safe in scripts. Raises BundleError."""
    try:
        version = decode(data, _Version).format
        if version != FORMAT:
            hint = "make it again with this version of Longboat: longboat cluster bundle"
            raise BundleError(f"{place}: a bundle of format {version}; this Longboat reads format {FORMAT}", hint=hint)
        manifest = decode(data, SoftwareManifest)
    except (msgspec.DecodeError, ValueError) as error:
        raise BundleError(f"{place}: {MANIFEST} is not understood: {error}") from None
    for file in manifest.files:
        if not _PATH.fullmatch(file.path) or not _SUM.fullmatch(file.sha256) or file.size < 0:
            raise BundleError(f"{place}: {MANIFEST} lists a file that no bundle has: {file.path[:100]!r}")
    for name in manifest.images:
        if not _IMAGE.fullmatch(name):
            raise BundleError(f"{place}: {MANIFEST} lists an image with an odd name: {name[:100]!r}")
    if len({file.path for file in manifest.files}) < len(manifest.files) or len(manifest.files) > MOST_FILES:
        raise BundleError(f"{place}: {MANIFEST} lists a file twice, or more than {MOST_FILES} of them")
    return manifest


class _Version(Value, frozen=True):
    format: int


def encode_manifest(manifest: SoftwareManifest) -> bytes:
    """Encode a manifest; the same content gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def wanted_images(spec: ClusterSpec) -> tuple[str, ...]:
    """Images without which no pod starts; a custom network and add-ons may need more."""
    kubernetes = [f"registry.k8s.io/{name}:v{spec.versions.kubernetes}" for name in _KUBERNETES_IMAGES]
    plugin = [spec.versions.device_plugin_image] if "gpu" in spec.addons else []
    vip = [spec.versions.kube_vip_image] if spec.vip else []
    return (f"registry.k8s.io/pause:{spec.versions.pause}", *kubernetes, *plugin, *vip, *longboat_image(spec))


def longboat_image(spec: ClusterSpec) -> list[str]:
    """The image that has Longboat, if an add-on runs it."""
    return [spec.image] if spec.image and {"controller", "autoscaler", "storage"} & set(spec.addons) else []


_KUBERNETES_IMAGES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")


def check_manifest(manifest: SoftwareManifest, spec: ClusterSpec, place: str, more: Iterable[str] = ()) -> None:
    """Raise Refused, with all reasons, if the bundle does not suit the cluster. `more`: images of add-ons."""
    reasons = []
    if manifest.kubernetes != spec.versions.kubernetes:
        reasons.append(f"it has Kubernetes {manifest.kubernetes}, the cluster file asks for {spec.versions.kubernetes}")
    missing = missing_images(manifest.images, spec, more)
    if missing:
        reasons.append(f"it has no image {', '.join(missing)}")
    if not manifest.packages:
        reasons.append("it has no packages")
    if spec.network.kind == "flannel" and manifest.flannel != spec.versions.flannel:
        reasons.append(f"it has {f'flannel {manifest.flannel}' if manifest.flannel else 'no flannel'}")
    if reasons:
        raise Refused(f"{place}: {'; '.join(reasons)}", hint="longboat cluster bundle makes one for this cluster file")


def missing_images(images: Iterable[str], spec: ClusterSpec, more: Iterable[str] = ()) -> list[str]:
    known = set(images)
    return [name for name in (*wanted_images(spec), *more) if name not in known]


def host_problems(manifest: SoftwareManifest, facts: Mapping[str, HostFacts]) -> list[HostProblem]:
    """Problems of hosts that the bundle's packages do not suit."""
    problems = []
    for host in facts.values():
        system = system_name(host.os_id, host.os_version or host.os_codename)
        if (system, host.architecture) != (manifest.system, manifest.architecture):
            message = f"the bundle is for {manifest.system} on {manifest.architecture}"
            problems.append(
                HostProblem(
                    host=host.name,
                    check="bundle",
                    message=f"{message}, the host has {system or 'another system'} on {host.architecture or 'another'}",
                    remedy="make the bundle on a machine with the system of the hosts; they must all have the same",
                )
            )
    return problems


def system_name(system: str, version: str) -> str:
    return f"{system} {version}".strip()
