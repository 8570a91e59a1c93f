"""A turn of the provisioner: what is wrong with one claim or one volume stops no others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longboat.clusters.provisioner import serve
from longboat.clusters.provisioner.serve import Provisioner
from longboat.clusters.provisioner.volumes import VolumePlace, volume_object
from tests.clusters.provisioner.test_volumes import claim

PLACE = VolumePlace(path="/srv/longboat-volumes", node="gpu-1", hostname="gpu-1")


class WritingClient:
    """Writes down what is made and deleted."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    def create(self, body: dict[str, Any]) -> None:
        self.log.append((body["kind"], body.get("message") or body["metadata"]["name"]))

    def delete(self, _kind: object, name: str, **_: Any) -> None:
        self.log.append(("deleted", name))


@pytest.fixture
def client() -> WritingClient:
    return WritingClient()


def provisioner(
    client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, *, claims: Any = (), made: Any = ()
) -> Provisioner:  # fmt: skip
    """With these objects in place of what a server would tell."""
    monkeypatch.setattr(serve, "Reflector", lambda *_, **__: None)
    service = Provisioner(client, PLACE, folder, lambda text: None)
    for name, bodies in (("_claims", claims), ("_volumes", made)):
        items = {body["metadata"]["uid"]: body for body in bodies}
        monkeypatch.setattr(service, name, SimpleNamespace(items=items))
    return service


def numbered(body: dict[str, Any], number: int) -> dict[str, Any]:
    body["metadata"]["uid"] = f"0f8fad5b-d9cb-469f-a165-70867728950{number}"
    return body


def test_a_claim_that_is_not_understood_gets_an_event_and_the_next_its_volume(
    client: WritingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    legacy, broken, good = (numbered(claim(), number) for number in range(3))
    del legacy["spec"]["storageClassName"]  # a class by annotation, as of old
    del broken["spec"]["resources"]
    provisioner(client, tmp_path, monkeypatch, claims=(legacy, broken, good)).turn()
    assert client.log == [
        ("Event", "expected the field storageClassName, longboat-local or longboat-nfs"),
        ("Event", "the claim is not understood: KeyError('resources')"),
        ("PersistentVolume", f"pvc-{good['metadata']['uid']}"),
    ]


def test_a_folder_that_cannot_be_deleted_keeps_no_other(
    client: WritingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for number in range(2):
        volume = volume_object(numbered(claim(), number), PLACE)
        made.append({**numbered(volume, number), "status": {"phase": "Released"}})
        (tmp_path / volume["metadata"]["name"]).mkdir()

    def delete_folder(path: Path) -> None:
        if path.name.endswith("0"):
            raise RecursionError("too deep")

    monkeypatch.setattr(serve, "delete_folder", delete_folder)
    provisioner(client, tmp_path, monkeypatch, made=made).turn()
    assert client.log == [("deleted", made[1]["metadata"]["name"])]
