"""`up` and `down` on Azure and Google Cloud, ended at every request that changes something, and run again.

With the autoscaler, whose rights are the last that is given and the first that is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longboat.cli.main import enter
from longboat.clouds.rest import RestClient
from longboat.clusters.addons.addon import PoolsText
from tests.clouds.azure.simulated_aks import SimulatedAks
from tests.clouds.gcp.simulated_gke import SimulatedGke
from tests.clusters.cloud.azure.conftest import azure as simulated_azure
from tests.clusters.cloud.conftest import GKE_ACCOUNT
from tests.clusters.cloud.gcp.conftest import google as simulated_google

__all__ = ["simulated_azure", "simulated_google"]
pytestmark = pytest.mark.clouds
LOOKING = (":getIamPolicy", "/listClusterUserCredential", "/listManagedInstances")
MOST_CHANGES = 12


def add_autoscaler() -> None:
    path = Path("cluster.yaml")
    path.write_text(path.read_text().replace("addons: []", "addons: [autoscaler]\nimage: registry.example.org/l:1"))


def ending(patch: pytest.MonkeyPatch, changes: int, *, is_sent: bool) -> None:
    """The command ends at a request that changes something, after so many others; `is_sent`: it is carried out."""
    send: Callable[..., Any] = RestClient.send
    left = changes

    def send_or_end(client: RestClient, method: str, target: str, *rest: Any, **more: Any) -> Any:
        nonlocal left
        if method == "GET" or any(word in target for word in LOOKING):
            return send(client, method, target, *rest, **more)
        if left == 0 and not is_sent:
            raise KeyboardInterrupt
        answer = send(client, method, target, *rest, **more)
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return answer

    patch.setattr(RestClient, "send", send_or_end)


def ended_everywhere(words: list[str], *, is_sent: bool, again: Callable[[], None]) -> int:
    """How many requests change something: each is one at which the command was ended, and then run again."""
    for changes in range(MOST_CHANGES):
        with pytest.MonkeyPatch.context() as patch:
            ending(patch, changes, is_sent=is_sent)
            code = enter(["cluster", *words])
        assert code in (0, 130), words
        if code == 0:
            return changes
        assert enter(["cluster", *words]) == 0, (words, changes)
        again()
    raise AssertionError("it does not end")


@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
def test_on_azure(is_sent: bool, request: pytest.FixtureRequest, installed: list[PoolsText]) -> None:
    azure: SimulatedAks = request.getfixturevalue("simulated_azure")
    add_autoscaler()

    def is_up() -> None:
        assert enter(["cluster", "status"]) == 0 and len(azure.rights_of("client-of-longboat-lab-autoscaler")) == 3
        assert enter(["cluster", "down", "lab", "--yes"]) == 0 and azure.resources == {}

    def is_gone() -> None:
        assert azure.group is None and azure.resources == {}
        assert enter(["cluster", "up"]) == 0

    assert ended_everywhere(["up"], is_sent=is_sent, again=is_up) == 3
    assert ended_everywhere(["down", "lab", "--yes"], is_sent=is_sent, again=is_gone) == 7


@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
def test_on_google_cloud(is_sent: bool, request: pytest.FixtureRequest, installed: list[PoolsText]) -> None:
    google: SimulatedGke = request.getfixturevalue("simulated_google")
    add_autoscaler()

    def is_up() -> None:
        assert enter(["cluster", "status"]) == 0 and len(google.rights_of("lab-1", GKE_ACCOUNT)) == 6
        assert enter(["cluster", "down", "lab", "--yes"]) == 0 and google.rights_of("lab-1", GKE_ACCOUNT) == set()

    def is_gone() -> None:
        assert google.cluster is None and google.rights_of("lab-1", GKE_ACCOUNT) == set()
        assert enter(["cluster", "up"]) == 0

    assert ended_everywhere(["up"], is_sent=is_sent, again=is_up) == 3
    assert ended_everywhere(["down", "lab", "--yes"], is_sent=is_sent, again=is_gone) == 3
