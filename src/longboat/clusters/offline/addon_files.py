"""Add-ons in a software bundle: manifests that other projects publish, and the images that add-ons need."""

from __future__ import annotations

from pathlib import Path

import msgspec

from longboat.clusters.addons import metrics
from longboat.clusters.addons.manifest_files import CHECKSUM, ReleasedManifest, images_of, read_release
from longboat.clusters.addons.released import JOBSET, KUEUE
from longboat.clusters.hosts.scripts import chunks
from longboat.clusters.offline.manifest import longboat_image
from longboat.clusters.offline.software_bundle import SoftwareBundle
from longboat.clusters.small_files import load_file
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import EngineError, Refused
from longboat.engines.shared.files import make_folder, write_bytes

RELEASES = (JOBSET, KUEUE)


def _wanted(spec: ClusterSpec) -> list[ReleasedManifest]:
    return [release for release in RELEASES if release.addon in spec.addons]


def addon_images(spec: ClusterSpec) -> list[str]:
    """Images of the add-ons, as far as known without a manifest of the user's own."""
    named = dict(spec.manifests)
    images = [name for release in _wanted(spec) if release.addon not in named for name in release.images]
    return images + ([metrics.IMAGE] if "metrics" in spec.addons else [])


def archive_references(spec: ClusterSpec) -> list[str]:
    """What an archive of images must have been imported for, beside the version of Kubernetes: images of add-ons. Of a
    manifest of the user's own its location, since its images are not known before it is read.
    """
    named = dict(spec.manifests)
    own = [named[release.addon] for release in _wanted(spec) if release.addon in named]
    return [*addon_images(spec), *longboat_image(spec), *own]


def network_images(spec: ClusterSpec) -> list[str]:
    """Of a network of the user's own."""
    import yaml

    if not spec.network.manifest:
        return []
    content = load_file(spec.network.manifest)
    try:
        return images_of(list(yaml.safe_load_all(content)))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise EngineError(f"{spec.network.manifest}: not YAML: {' '.join(str(error).split())}") from None


def collect_manifests(spec: ClusterSpec, folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Manifest files by their path in the bundle, and all images that they and the network name."""
    make_folder(folder)
    files, images = {}, [*addon_images(spec), *network_images(spec)]
    for release in _wanted(spec):
        content, objects = read_release(spec, release)
        files[release.file_name] = folder / f"{release.addon}.yaml"
        write_bytes(files[release.file_name], content)
        images += images_of(objects)
    return files, sorted(set(images))


def with_manifests(spec: ClusterSpec, bundle: SoftwareBundle, cache: Path) -> ClusterSpec:
    """The spec with manifests from the bundle, where the cluster file names none."""
    named = dict(spec.manifests)
    for release in _wanted(spec):
        if release.addon in named:
            continue
        file = bundle.manifest.file(release.file_name)
        if file is None:
            raise Refused(
                f"{bundle.place}: it has no manifest of {release.addon} {release.version}",
                hint="longboat cluster bundle makes one for this cluster file",
            )
        path = make_folder(cache) / f"{file.sha256}.yaml"
        with chunks((bundle.part(file.path),)) as pieces:
            write_bytes(path, b"".join(pieces))
        named[release.addon] = f"{path}{CHECKSUM}{file.sha256}"
    return msgspec.structs.replace(spec, manifests=tuple(named.items()))
