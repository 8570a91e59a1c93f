"""Benchmark of a volume's disk, run inside a pod, and what its figures mean for a training.

The measuring itself runs in a helper pod (`pod_program.probe`), in a scratch folder that is removed again.
"""

from __future__ import annotations

from collections.abc import Mapping

from longboat.core.guards.decoding import convert
from longboat.core.jobs import Value
from longboat.core.resources import show_quantity
from longboat.engines.kubernetes.exec.helper_pod import HelperPod, HelperPodOptions
from longboat.engines.kubernetes.manifests.volumes import STORAGE
from longboat.engines.kubernetes.records import Storage
from longboat.kubeapi.client import Client

MB = 1_000_000
GB = 1000 * MB
IMAGES_PER_S = 1000
"""What a data loader for images should be able to do on one modern GPU."""
DEFAULT_SIZE = 256 << 20  # larger than caches of network volumes, read in seconds at 100 MB/s
DEFAULT_FILES = 1000  # a thousand opens show the latency of one
DEFAULT_FILE_SIZE = 100_000  # a photograph of a training set
SLOW_READ = 200 * MB  # a second: less than one local disk gives, and a GPU node reads for several ranks
ALIKE = 1.2
"""Two probes of one volume differ by as much."""
CACHED = 8 * GB  # a second: more than any volume gives, so it was read from memory


class DiskFigures(Value, frozen=True):
    """As measured. Rates per second."""

    size: int  # bytes of the large file
    write_bytes_per_s: float  # until it is safe on the disk
    read_bytes_per_s: float
    files: int
    file_size: int
    creates_per_s: float
    reads_per_s: float
    free: int
    total: int
    is_cold: bool = True  # the kernel was asked to forget the files before they were read


class BenchmarkSize(Value, frozen=True):
    """How much is written."""

    size: int = DEFAULT_SIZE
    files: int = DEFAULT_FILES
    file_size: int = DEFAULT_FILE_SIZE


def probe(
    client: Client,
    storage: Storage,
    *,
    image: str,
    extent: BenchmarkSize | None = None,
    options: HelperPodOptions | None = None,
) -> DiskFigures:
    """Measure a storage from a pod of its own. Raises EngineError."""

    chosen = extent or BenchmarkSize()
    with HelperPod(client, storage, image=image, options=options) as pod:
        figures = pod.ask("probe", STORAGE, str(chosen.size), str(chosen.files), str(chosen.file_size))
    return convert(figures, DiskFigures)


def meanings(figures: DiskFigures) -> tuple[str, ...]:
    """What the figures mean for a training, in sentences. Pure."""
    said = [
        f"A checkpoint of 10 GB takes {_time(10 * GB / figures.write_bytes_per_s)} to write "
        f"and {_time(10 * GB / figures.read_bytes_per_s)} to read.",
        f"Reading 100 GB of large files once takes {_time(100 * GB / figures.read_bytes_per_s)}.",
        _images(figures),
    ]
    if figures.read_bytes_per_s < SLOW_READ:
        said.append(
            "Large reads are slow here: copy the data to scratch at the start of the run, or use another class."
        )
    if figures.read_bytes_per_s > CACHED or not figures.is_cold:
        said.append("The reads were probably served from the machine's memory: the disk itself may be slower.")
    if figures.free < 20 * GB:
        said.append(f"Only {show_quantity(figures.free)} are free: few checkpoints fit.")
    return tuple(said)


def compare_figures(measured: Mapping[str, DiskFigures]) -> tuple[str, ...]:
    """What the difference between volumes means for a training, and what helps on the slow ones. Pure."""
    said = []
    for work, rates in (
        ("Checkpoints are written", {name: figures.write_bytes_per_s for name, figures in measured.items()}),
        ("Large files are read", {name: figures.read_bytes_per_s for name, figures in measured.items()}),
        ("Small files are read", {name: figures.reads_per_s for name, figures in measured.items()}),
    ):
        best, worst = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
        factor = rates[best] / max(rates[worst], 1e-9)
        if factor < ALIKE:
            said.append(f"{work} about as fast on all of them.")
        else:
            said.append(f"{work} fastest on {best}: {factor:,.1f} times as fast as on {worst}.")
    for name, figures in measured.items():
        if figures.reads_per_s < IMAGES_PER_S / 4:
            said.append(
                f"{name}: each small file costs {1000 / max(figures.reads_per_s, 1e-9):,.0f} ms, as on most network"
                " file systems. Tar shards, more loader workers, or a copy to scratch at the start help; a faster class"
                " of throughput alone does not."
            )
        elif figures.read_bytes_per_s < SLOW_READ:
            said.append(f"{name}: large reads are slow; more throughput (a larger volume or class) helps.")
    return tuple(said)


def _images(figures: DiskFigures) -> str:
    rate = figures.reads_per_s * figures.file_size / DEFAULT_FILE_SIZE if figures.file_size else 0.0
    head = f"{IMAGES_PER_S:,} images of 100 KB per second, for one busy GPU: "
    if rate >= 2 * IMAGES_PER_S:
        return f"{head}yes, one process reads {rate:,.0f}."
    if rate >= IMAGES_PER_S:
        return f"{head}just so, one process reads {rate:,.0f}; use several loader workers."
    workers = -(-IMAGES_PER_S // max(1, int(rate)))
    if workers <= 16:
        return (
            f"{head}one process reads {rate:,.0f}; {workers} loader workers may do, if the storage keeps up with them."
        )
    return (
        f"{head}no, one process reads {rate:,.0f}; pack the images into large files (tar shards), or copy them first."
    )


def _time(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
