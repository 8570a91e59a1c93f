"""The provisioner as a service: watches claims and volumes, makes folders, deletes those of claims that are gone."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from longboat.clusters.provisioner import volumes
from longboat.clusters.provisioner.folders import delete_folder
from longboat.clusters.provisioner.volumes import Object, VolumePlace
from longboat.clusters.spec import OWN_FOLDER
from longboat.engines.shared.probe_server import serve
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, ApiError
from longboat.kubeapi.kinds import PVC, VOLUME
from longboat.kubeapi.watch import Reflector

RETRY_S = 10.0
"""Between two tries of what failed: a disk that is full, a server that is away. News of the cluster come at once."""
MODE = 0o777
"""Of a volume's folder: pods of any user write to it. Whoever is on the node is kept out by the folder above."""


class Provisioner:
    """Provisions volumes until stopped. `folder`: where the volumes' path is mounted in this pod."""

    def __init__(self, client: Client, place: VolumePlace, folder: Path, say: Callable[[str], None]) -> None:
        self._client = client
        self._place = place
        self._folder = folder
        self._say = say
        self._news = threading.Event()
        self._told: dict[str, str] = {}
        self._claims: Reflector[Object] = Reflector(
            client, PVC, everywhere=True, on_change=lambda _: self._news.set()
        )  # fmt: skip
        labels = ",".join(f"{key}={value}" for key, value in volumes.LABELS.items())
        self._volumes: Reflector[Object] = Reflector(
            client, VOLUME, everywhere=True, labels=labels, on_change=lambda _: self._news.set()
        )

    def run(self, ending: threading.Event, health_port: int | None) -> None:
        if health_port is not None:
            checks = {"/healthz": self.why_unhealthy, "/readyz": self.why_not_ready}
            serve(health_port, checks, option="--health-port")
        if not self._place.server and self._place.path.endswith(f"/{OWN_FOLDER}"):
            os.chmod(self._folder, 0o700)
        self._say(f"volumes on {self._place.text}")
        try:
            while not ending.is_set():
                if self._claims.is_synced and self._volumes.is_synced:
                    self.turn()
                self._wait(ending)
        finally:
            self.close()

    def close(self) -> None:
        self._claims.close()
        self._volumes.close()

    def _wait(self, ending: threading.Event) -> None:
        waited_s = 0.0
        while not self._news.wait(0.5) and not ending.is_set() and waited_s < RETRY_S:  # 0.5 s: an end is seen soon
            waited_s += 0.5
        self._news.clear()

    def why_unhealthy(self) -> str:
        return self._claims.why_long_stale() or self._volumes.why_long_stale()

    def why_not_ready(self) -> str:
        return self._claims.why_stale() or self._volumes.why_stale()

    def turn(self) -> None:
        """Provision every pending claim and delete every released volume. Failures are retried, and stop no others."""
        claims, made = self._claims.items, self._volumes.items
        self._told = {uid: text for uid, text in self._told.items() if uid in claims or uid in made}
        for claim in claims.values():
            if volumes.is_wanted(claim, self._place):
                self._serve(claim)
        for volume in made.values():
            if volumes.has_ended(volume, self._place):
                self._end(volume)

    def _serve(self, claim: Object) -> None:
        try:
            reason = volumes.refusal(claim, self._place)
            if not reason:
                self.make_folder(volumes.volume_name(claim))
                self._client.create(volumes.volume_object(claim, self._place))
                self._say(f"{volumes.volume_name(claim)}: made for {_shown(claim)}")
        except AlreadyExists:
            return  # made a moment ago, and the copy of the claim is older
        except OSError as error:
            reason = f"no folder on {self._place.text}: {error.strerror}"
        except ApiError as error:
            reason = error.message
        except Exception as error:  # what users write into their claims may fail anywhere
            reason = f"the claim is not understood: {error!r}"
        if reason:
            self._tell(claim, reason)

    def make_folder(self, name: str) -> None:
        path = self._folder / name
        path.mkdir(exist_ok=True)
        path.chmod(MODE)  # mkdir's mode goes through the umask

    def _end(self, volume: Object) -> None:
        """Delete a volume's folder, then the PersistentVolume, which stays as long as something is left."""
        name = volume["metadata"]["name"]
        try:
            delete_folder(self._folder / name)
            self._client.delete(VOLUME, name, uid=volume["metadata"]["uid"])
            self._say(f"{name}: deleted")
        except Exception as error:  # pods made what is in it, which may fail anywhere
            self._once(volume, f"{name}: not deleted: {error}")

    def _tell(self, claim: Object, reason: str) -> None:
        if not self._once(claim, f"{_shown(claim)}: {reason}"):
            return
        now = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"{claim['metadata']['name'][:200]}.{secrets.token_hex(8)}"
        try:
            self._client.create(volumes.failure_event(claim, reason, now=now, name=name))
        except ApiError as error:
            self._say(f"{_shown(claim)}: no event: {error.message}")

    def _once(self, body: Object, text: str) -> bool:
        """Log a message unless it was the last one about this object."""
        uid = body["metadata"]["uid"]
        if self._told.get(uid) == text:
            return False
        self._told[uid] = text
        self._say(text)
        return True


def _shown(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
