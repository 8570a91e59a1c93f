"""Container images without Docker or a registry: made as archives, kept by what is in them, given to every node.

Importing an image takes seconds, so it is done once: a store (containerd's own folder with the images in it) is kept in
the cache, and a node gets a copy made of hard links. In the cluster an image is `longboat.test/<name>:latest`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed import binaries, dockerfile, namespaces, wheels
from testbed.binaries import Binaries
from testbed.errors import Missing, TestbedError

BASE = ("pause", "coredns", "python")
"""What every node has from the start."""
SUITE = "bookworm"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LEFT_OUT = ("doc", "man", "info", "locale", "lintian")
BLOCK = 1 << 20
KEPT = 4
TORCH_ADDITION = """
# Added by the testbed: torchrun's own stores do not look at USE_LIBUV, and this torch is built without libuv.
def _follow_use_libuv():
    import os

    make = TCPStore.__init__

    def __init__(self, *values, **options):
        # As the ninth value it is given by position.
        if len(values) < 9:
            options.setdefault("use_libuv", os.environ.get("USE_LIBUV", "1") == "1")
        make(self, *values, **options)

    TCPStore.__init__ = __init__


_follow_use_libuv()
"""


@dataclass(frozen=True)
class Recipe:
    """How an image is made: of one program, of Debian packages, of wheels on top of another, or by a Dockerfile."""

    name: str
    program: str = ""
    packages: tuple[str, ...] = ()
    suite: str = SUITE
    settings: Mapping[str, object] = field(default_factory=dict)
    additions: Mapping[str, str] = field(default_factory=dict)
    """What is added to the end of files that the packages brought."""
    base: str = ""
    """An image that every node has. This one is a layer on top of it, and its archive has only that layer."""
    wheels: tuple[str, ...] = ()
    """What that layer holds, from a package index."""
    builder: str = ""
    """deploy/Dockerfile makes the image, on `base` and with this one for pip; its archive has all layers."""
    has_ui: bool = False
    """deploy/Dockerfile.ui adds what the dashboard needs."""


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("pause", program="pause", settings={"Entrypoint": ["/pause"], "User": "65535:65535"}),
        Recipe("coredns", program="coredns", settings={"Entrypoint": ["/coredns"]}),
        Recipe(
            "python",
            packages=("python3", "python-is-python3"),
            settings={"Env": [f"PATH={PATH}", "LANG=C.UTF-8"], "Cmd": ["python3"]},
        ),
        Recipe(
            "torch",
            packages=("python3", "python-is-python3", "python3-torch", "python3-numpy"),
            suite="trixie",
            # Debian's torch is built without the library that its rendezvous would use by default.
            settings={"Env": [f"PATH={PATH}", "LANG=C.UTF-8", "USE_LIBUV=0"], "Cmd": ["python3"]},
            additions={"/usr/lib/python3/dist-packages/torch/distributed/__init__.py": TORCH_ADDITION},
        ),
        Recipe(
            "tensorflow",
            base="python",
            wheels=("tensorflow-cpu==2.18.*", "tf-keras==2.18.*"),
            settings={"Env": [f"PATH={PATH}", "LANG=C.UTF-8", "TF_CPP_MIN_LOG_LEVEL=2"], "Cmd": ["python3"]},
        ),
        Recipe(
            "numpy",
            base="python",
            wheels=("numpy==2.*",),
            settings={"Env": [f"PATH={PATH}", "LANG=C.UTF-8"], "Cmd": ["python3"]},
        ),
        Recipe("jobset", program="jobset", settings={"Entrypoint": ["/jobset"], "User": "65532:65532"}),
        Recipe("kueue", program="kueue", settings={"Entrypoint": ["/kueue"], "User": "65532:65532"}),
        Recipe("metrics-server", program="metrics-server", settings={"Entrypoint": ["/metrics-server"]}),
        Recipe("python-pip", base="python", wheels=("pip>=24",), settings={"Env": [f"PATH={PATH}"]}),
        Recipe("longboat", base="python", builder="python-pip"),
        Recipe("longboat-ui", base="python", builder="python-pip", has_ui=True),
    )
}


def reference(name: str) -> str:
    return f"longboat.test/{name}:latest"


def key_of(recipe: Recipe) -> str:
    """Changes with what goes into the image."""
    parts = asdict(recipe)
    additions, base, wanted, builder = (parts.pop(name) for name in ("additions", "base", "wheels", "builder"))
    if not parts["has_ui"]:
        del parts["has_ui"]  # the keys of the others stay as they were
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode() + b"1")
    if additions:
        digest.update(json.dumps(additions, sort_keys=True).encode())
    if base:
        digest.update(f"{key_of(RECIPES[base])} {' '.join(wanted)}".encode())
    if builder:
        digest.update(f"{key_of(RECIPES[builder])} {dockerfile.key(ui=recipe.has_ui)}".encode())
    if recipe.program:
        target = next(candidate for candidate in binaries.TARGETS if recipe.program in candidate.programs)
        digest.update(binaries.key_of(target).encode())
    return digest.hexdigest()[:16]


def archive_path(recipe: Recipe) -> Path:
    return binaries.cache_folder() / "images" / f"{recipe.name}-{key_of(recipe)}.tar"


@contextlib.contextmanager
def image_lock(name: str) -> Iterator[Path]:
    """One maker at a time of one image (or of the stores). The kernel frees a killed maker's lock."""
    folder = binaries.cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def archive(name: str, programs: Binaries) -> Path:
    """The image as a file that containerd imports; made if it is not in the cache yet."""
    recipe = RECIPES[name]
    wanted = archive_path(recipe)
    if wanted.exists():
        return wanted
    with image_lock(name) as folder:
        if not wanted.exists():
            print(f"testbed images: making {name}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
                make_archive(recipe, Path(scratch), programs).rename(wanted)
                if recipe.base:
                    remove_older(wanted)
    return wanted


def make_archive(recipe: Recipe, scratch: Path, programs: Binaries) -> Path:
    finished = scratch / "image.tar"
    if recipe.builder:
        below = (archive(recipe.base, programs), archive(recipe.builder, programs))
        dockerfile.build(finished, reference(recipe.name), *below, ui=recipe.has_ui)
        return finished
    layer = scratch / "layer.tar"
    fill_layer(recipe, layer, programs)
    layers = layers_of(archive(recipe.base, programs)) if recipe.base else []
    write_archive(finished, layer, reference(recipe.name), recipe.settings, layers)
    return finished


def layers_of(archive: Path) -> list[dict[str, object]]:
    """The layers of an image, as its manifest describes them."""

    def blob(tar: tarfile.TarFile, digest: str) -> bytes:
        content = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert content is not None
        return content.read()

    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        (listed,) = json.loads(index.read())["manifests"]
        layers: list[dict[str, object]] = json.loads(blob(tar, listed["digest"]))["layers"]
    return layers


def remove_older(wanted: Path) -> None:
    """Of an image that changes with every line of code only the newest few are kept: others may be loading one."""
    name = wanted.name.rpartition("-")[0]
    archives = sorted(wanted.parent.glob(f"{name}-*.tar"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in archives[KEPT:]:
        file.unlink(missing_ok=True)


def fill_layer(recipe: Recipe, layer: Path, programs: Binaries) -> None:
    if recipe.base:
        wheels.fill_layer(recipe.wheels, layer)
        return
    if not recipe.program:
        debian_layer(recipe, layer)
        return
    source = programs[recipe.program]
    with tarfile.open(layer, "w") as tar:
        entry = tarfile.TarInfo(recipe.program)
        entry.mode, entry.size = 0o755, source.stat().st_size
        with open(source, "rb") as content:
            tar.addfile(entry, content)


def missing_tool() -> str | None:
    return (
        None if shutil.which("mmdebstrap") else "images of Debian packages are made by mmdebstrap: install mmdebstrap"
    )


def debian_layer(recipe: Recipe, layer: Path) -> None:
    lacks = missing_tool()
    if lacks:
        raise Missing(lacks)
    options = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in LEFT_OUT]
    options += [f"--customize-hook={addition_line(path, text)}" for path, text in recipe.additions.items()]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(recipe.packages)}", *options]
    done = subprocess.run([*command, recipe.suite, str(layer)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(f"mmdebstrap failed for {recipe.name}:\n{done.stderr[-2000:]}")


def addition_line(path: str, text: str) -> str:
    """A line of shell that mmdebstrap runs with the folder of the finished packages as its first argument. Pure."""
    file = f'"$1"{shlex.quote(path)}'
    # A file that a later package no longer has must not appear with the addition alone in it.
    return f"test -f {file} && printf %s {shlex.quote(text)} >> {file}"


def digest_of(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while block := content.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def architecture() -> str:
    """As Go calls it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def write_archive(
    archive: Path,
    layer: Path,
    name: str,
    settings: Mapping[str, object],
    below: Sequence[Mapping[str, object]] = (),
) -> None:
    """An OCI layout in one tar file: one layer, its configuration, and an index that carries the image's name.

    Layers `below` are not in the file: a node must have them from another image.
    """
    layer_digest = digest_of(layer)
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": dict(settings),
        # The layers are not compressed, so that their digests are those of what is in them.
        "rootfs": {"type": "layers", "diff_ids": [*(lower["digest"] for lower in below), f"sha256:{layer_digest}"]},
        "created": "1970-01-01T00:00:00Z",
    }
    with tarfile.open(archive, "w") as tar:
        add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        entry = tarfile.TarInfo(f"blobs/sha256/{layer_digest}")
        entry.size = layer.stat().st_size
        with open(layer, "rb") as content:
            tar.addfile(entry, content)
        layers = [*below, descriptor("layer.v1.tar", layer_digest, entry.size)]
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": add_blob(tar, "config.v1+json", config),
            "layers": layers,
        }
        listed = add_blob(tar, "manifest.v1+json", manifest)
        listed["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "latest"}
        add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode())


def descriptor(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": size}


def add_blob(tar: tarfile.TarFile, kind: str, value: object) -> dict[str, object]:
    content = json.dumps(value, sort_keys=True).encode()
    digest = hashlib.sha256(content).hexdigest()
    add(tar, f"blobs/sha256/{digest}", content)
    return descriptor(kind, digest, len(content))


def add(tar: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


# A containerd of its own for a moment, in namespaces that take it and its mounts away however this ends.
_IMPORT = """
set -e
mount -t tmpfs tmpfs /run
containerd=$1; ctr=$2; config=$3; shift 3
"$containerd" --config "$config" >/run/containerd.log 2>&1 &
server=$!
tries=0
until "$ctr" -a /run/c.sock version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] && kill -0 $server || { cat /run/containerd.log >&2; exit 1; }
    sleep 0.1
done
for file; do "$ctr" -a /run/c.sock -n k8s.io images import "$file" >&2; done
kill $server
wait $server || true
sync
"""


def store(names: Sequence[str], programs: Binaries) -> Path:
    """A containerd folder in which these images are imported and unpacked; made if it is not in the cache yet."""
    archives = [archive(name, programs) for name in names]
    runtime = binaries.key_of(binaries.BY_NAME["containerd"])
    key = hashlib.sha256(" ".join([runtime, *(file.name for file in archives)]).encode()).hexdigest()[:16]
    wanted = binaries.cache_folder() / "stores" / key
    if wanted.exists():
        return wanted
    namespaces.check()
    with image_lock("stores"):
        if not wanted.exists():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            for left in wanted.parent.glob(".making-*"):
                shutil.rmtree(left, ignore_errors=True)
            print(f"testbed images: importing {', '.join(names)}", file=sys.stderr, flush=True)
            fill_store(wanted, archives, programs)
    return wanted


def fill_store(wanted: Path, archives: Sequence[Path], programs: Binaries) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=wanted.parent))
    try:
        root = scratch / "root"
        config = scratch / "containerd.toml"
        config.write_text(
            f'version = 3\nroot = "{root}"\nstate = "/run/state"\n'
            'disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", '
            '"io.containerd.internal.v1.opt"]\n'
            '[grpc]\n  address = "/run/c.sock"\n'
        )
        room = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        command = ["sh", "-c", _IMPORT, "sh", str(programs["containerd"]), str(programs["ctr"]), str(config)]
        done = subprocess.run(
            [*room, *command, *map(str, archives)], capture_output=True, text=True, check=False,
            env={"PATH": programs.search_path()},
        )  # fmt: skip
        if done.returncode != 0:
            raise TestbedError(f"the images could not be imported:\n{done.stderr[-3000:]}")
        root.chmod(0o700)
        root.rename(wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def clone(source: Path, target: Path) -> None:
    """A copy for one node. Files of images are never written to, so links do; databases are, so they are copied."""
    target.mkdir(parents=True, exist_ok=True)
    for how in ("--link", "--reflink=auto"):
        # The folder itself stays: the node's room shows it already.
        for left in target.iterdir():
            shutil.rmtree(left)
        command = ["cp", "-a", how, f"{source}/.", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    else:
        raise TestbedError(f"the images could not be copied: {done.stderr[-500:]}")
    for database in [*target.glob("*/*.db"), *target.glob("*/*/*.db")]:
        copy = database.with_name(f".{database.name}.copy")
        shutil.copy2(database, copy)
        copy.rename(database)


def load(names: Sequence[str], programs: Binaries, holder: int, socket: str) -> None:
    """Give further images to a running node."""
    for name in names:
        command = [str(programs["ctr"]), "-a", socket, "-n", "k8s.io", "images", "import", str(archive(name, programs))]
        namespaces.run(holder, command)
