"""Size limits of a tree, told before the work starts, with where its weight is. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from longboat.bundles.trees import TreeLimits
from longboat.core.errors import BundleError

_MOST_NAMED = 3  # the largest few show what to ignore
_DOMINATES = 0.8  # a folder with this share of its parent is the one to name
_WORTH_NAMING = 0.1  # a smaller share would not bring the total below the limit


def check(sizes: Mapping[str, int], limits: TreeLimits) -> None:
    """Raise when the files, by path, are too many or too large together."""
    total = sum(sizes.values())
    if total > limits.max_bytes:
        heavy = [f"{size_text(size)} in {place}" for place, size in heaviest(sizes)]
        raise BundleError(
            f"the code is {size_text(total)}, at most {size_text(limits.max_bytes)} travel: {', '.join(heavy)}",
            hint=f"{heavy[0]}: add it to .longboatignore or mount it",
        )
    if len(sizes) > limits.max_files:
        raise too_many(sizes, limits)


def too_many(sizes: Mapping[str, int], limits: TreeLimits) -> BundleError:
    """The error for more files than may travel; `sizes` may stop at the first one too many."""
    full = [
        f"{count:,} {'file' if count == 1 else 'files'} in {place}"
        for place, count in heaviest(dict.fromkeys(sizes, 1))
    ]
    return BundleError(
        f"the code has more than {limits.max_files:,} files: {', '.join(full)}",
        hint=f"{full[0]}: add it to .longboatignore or mount it",
    )


def heaviest(weights: Mapping[str, int]) -> list[tuple[str, int]]:
    """The folders (or single files) that hold most of the weight, heaviest first, as deep as one of them dominates."""
    total = sum(weights.values()) or 1
    weighed = sorted(_children(weights, "").items(), key=lambda item: (-item[1], item[0]))
    named = [item for item in weighed[:_MOST_NAMED] if item[1] >= total * _WORTH_NAMING] or weighed[:1]
    return [_descend(weights, place, weight) for place, weight in named]


def _descend(weights: Mapping[str, int], place: str, weight: int) -> tuple[str, int]:
    while place.endswith("/"):
        below = _children(weights, place)
        heavy, most = max(below.items(), key=lambda item: (item[1], item[0]))
        if not heavy.endswith("/") or most < weight * _DOMINATES:
            break
        place, weight = heavy, most
    return place, weight


def _children(weights: Mapping[str, int], place: str) -> dict[str, int]:
    """Weight of every child of a folder; folders end with a slash, "" is the root."""
    sums: dict[str, int] = {}
    for path, weight in weights.items():
        if path.startswith(place):
            name, slash, _ = path[len(place) :].partition("/")
            sums[place + name + slash] = sums.get(place + name + slash, 0) + weight
    return sums


def size_text(size: int) -> str:
    amount, units = float(size), ["TB", "GB", "MB", "kB", "bytes"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop()
    return f"{amount:.0f} {units[-1]}" if units[-1] == "bytes" or amount >= 10 else f"{amount:.1f} {units[-1]}"
