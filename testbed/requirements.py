"""What this machine lacks for a kind of test, in one line that names the command or package. It only looks."""

from __future__ import annotations

from collections.abc import Sequence

from testbed import binaries, build, driver, images, manifests, namespaces, profiles
from testbed.errors import Missing

KINDS = {
    "cluster": ("api", "gpu"),
    "pods": ("pods",),
    "controllers": ("jobset", "kueue"),
    "nvidia": ("nvidia",),
    "older": ("pods", "older"),
}
"""Kind of test to the profiles its cluster has."""


def missing(kind: str) -> str | None:
    """Why tests of this kind cannot run here, or nothing when they can."""
    parts = profiles.combine(KINDS[kind])
    lacks = missing_programs(parts.targets)
    if lacks is None and parts.real_nodes:
        lacks = namespaces.missing() or missing_images(parts.images)
    for controller in parts.controllers:
        lacks = lacks or manifests.missing(controller)
    if "nvidia" in parts.profiles:
        lacks = lacks or driver.missing()
    return lacks


def missing_programs(names: Sequence[str]) -> str | None:
    """What is needed to make those programs that are not there yet."""
    for name in names:
        target = binaries.BY_NAME[name]
        if binaries.lookup(target) is None:
            try:
                build.check_tools(target)
            except Missing as error:
                return str(error)
    return None


def missing_images(names: Sequence[str]) -> str | None:
    for name in names:
        recipe = images.RECIPES[name]
        if recipe.packages and not images.archive_path(recipe).exists():
            lacks = images.missing_tool()
            if lacks:
                return lacks
    return None
