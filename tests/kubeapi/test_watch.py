"""A copy of a collection that stays true through dropped watches, storms, silence and forgotten versions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Expired, Forbidden, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, JOBSET, POD
from longboat.kubeapi.watch import Change, Reflector, Watch, WatchScope, watch
from testbed import certificates, faults
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.kubeapi.objects import ConfigMapStruct

pytestmark = pytest.mark.cluster
WITHIN_S = 60.0


def config(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {"watched": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


class Seen:
    """What a reflector told, in order."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []

    def __call__(self, change: Change[ConfigMapStruct]) -> None:
        self.changes.append((change.type, change.object.metadata.name))

    def folded(self) -> set[str]:
        """What is there according to the changes alone."""
        found: set[str] = set()
        for kind, name in self.changes:
            assert (name in found) == (kind != "ADDED"), self.changes
            (found.discard if kind == "DELETED" else found.add)(name)
        return found


def reflecting(client: Client, **more: Any) -> Reflector[ConfigMapStruct]:
    return Reflector(client, CONFIG_MAP, labels="watched=yes", into=ConfigMapStruct, **more)


def data(reflector: Reflector[ConfigMapStruct]) -> dict[str, dict[str, str]]:
    return {item.metadata.name: item.data for item in reflector.items.values()}


def until(reflector: Reflector[Any], holds: Callable[[], bool]) -> None:
    """Return when it holds; woken by the reflector's changes only."""
    deadline = time.monotonic() + WITHIN_S
    seen = reflector.revision
    while not holds():
        assert time.monotonic() < deadline, (reflector.items, reflector.trouble)
        seen = reflector.wait(seen, 0.5)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_changes_come_as_they_happen(client: Client) -> None:
    client.create(config("before", a="1"))
    seen = Seen()
    with reflecting(client, on_change=seen) as found:
        found.sync()
        assert data(found) == {"before": {"a": "1"}}
        made = client.create(config("after"))
        client.patch(CONFIG_MAP, "after", {"data": {"b": "2"}})
        client.create({**config("unseen"), "metadata": {"name": "unseen"}})
        until(found, lambda: data(found).get("after") == {"b": "2"})
        assert made["metadata"]["uid"] in found.items
        client.delete(CONFIG_MAP, "before")
        until(found, lambda: set(data(found)) == {"after"})
        eventually(lambda: len(seen.changes) == 4)
    assert seen.changes == [("ADDED", "before"), ("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "before")]


def test_a_plain_watch_tells_what_is_there_first(client: Client) -> None:
    client.create(config("one"))
    opened = watch(client, CONFIG_MAP, labels="watched=yes", into=ConfigMapStruct)
    for change in opened:
        assert (change.type, change.object.metadata.name) == ("ADDED", "one")
        opened.close()
    listing = client.list(CONFIG_MAP)
    client.create(config("two"))
    with contextlib.closing(watch(client, CONFIG_MAP, version=listing.version)) as later:
        first = next(iter(later))
    assert (first.type, first.object["metadata"]["name"]) == ("ADDED", "two")


def test_watches_dropped_every_second_lose_nothing(proxied: Client, api_proxy: ApiProxy, client: Client) -> None:
    seen = Seen()
    with reflecting(proxied, on_change=seen) as found:
        found.sync()
        api_proxy.drop_watches_every(1.0)
        began = time.monotonic()
        at = 0
        while time.monotonic() - began < 4.0:
            client.create(config(f"c-{at}"))
            if at % 3 == 2:
                client.delete(CONFIG_MAP, f"c-{at - 1}")
            at += 1
            time.sleep(0.05)
        expected = {f"c-{one}" for one in range(at) if not (one % 3 == 1 and one + 1 < at)}
        until(found, lambda: set(data(found)) == expected)
        eventually(lambda: seen.folded() == expected)
    watches = [one for one in api_proxy.seen if one.request.is_watch]
    lists = [one for one in api_proxy.seen if "limit=" in one.request.target]
    assert len(watches) >= 4
    assert len(lists) == 1  # resumed, not listed again
    assert all("allowWatchBookmarks=true" in one.request.target for one in watches)


@pytest.mark.parametrize("status", [429, 500])
def test_a_storm_is_survived(proxied: Client, api_proxy: ApiProxy, client: Client, status: int) -> None:
    with reflecting(proxied) as found:
        found.sync()
        api_proxy.answer(status, share=0.7)
        api_proxy.drop_watches()
        for at in range(5):
            client.create(config(f"c-{at}"))
            api_proxy.drop_watches()
        until(found, lambda: len(found.items) == 5)
    assert str(status) in {one.outcome for one in api_proxy.seen}


def test_when_to_come_back_is_heeded(proxied: Client, api_proxy: ApiProxy) -> None:
    with reflecting(proxied) as found:
        found.sync()
        eventually(lambda: api_proxy.open_watches == 1)
        api_proxy.answer(429, retry_after=600, only=lambda request: request.is_watch)
        api_proxy.drop_watches()
        eventually(lambda: found.trouble is not None)
        eventually(lambda: any(one.outcome == "429" for one in api_proxy.seen))
        eventually(lambda: found.trouble is not None and found.trouble.status == 429)
        time.sleep(1.0)  # long enough for several attempts, if it did not heed
    assert [one.outcome for one in api_proxy.seen].count("429") == 1


def test_a_half_open_connection_is_left(proxied: Client, api_proxy: ApiProxy, client: Client) -> None:
    with reflecting(proxied, silence_s=1.0) as found:
        found.sync()
        eventually(lambda: api_proxy.open_watches == 1)
        api_proxy.freeze()
        client.create(config("meanwhile"))
        eventually(lambda: isinstance(found.trouble, Unreachable))
        assert "meanwhile" not in data(found)
        api_proxy.restore()
        until(found, lambda: "meanwhile" in data(found))


def test_what_vanished_while_the_version_was_forgotten_is_told(
    proxied: Client, api_proxy: ApiProxy, client: Client
) -> None:
    for at in range(3):
        client.create(config(f"c-{at}"))
    old = client.create(config("replaced"))
    seen = Seen()
    with reflecting(proxied, on_change=seen) as found:
        found.sync()
        eventually(lambda: api_proxy.open_watches == 1)
        # Every watch is refused as too old for a while: the reflector must list, and see what is missing.
        api_proxy.answer(410, only=lambda request: request.is_watch)
        api_proxy.cut()
        client.delete(CONFIG_MAP, "c-0")
        client.patch(CONFIG_MAP, "c-1", {"data": {"a": "1"}})
        client.delete(CONFIG_MAP, "replaced")
        new = client.create(config("replaced"))
        api_proxy.restore()
        api_proxy.answer(410, share=0.5, only=lambda request: request.is_watch)
        until(found, lambda: set(data(found)) == {"c-1", "c-2", "replaced"} and data(found)["c-1"] == {"a": "1"})
        assert new["metadata"]["uid"] in found.items
        assert old["metadata"]["uid"] not in found.items
        eventually(lambda: len(seen.changes) == 8)
    assert sorted(seen.changes[4:]) == [
        ("ADDED", "replaced"),
        ("DELETED", "c-0"),
        ("DELETED", "replaced"),
        ("MODIFIED", "c-1"),
    ]


@pytest.mark.slow
def test_a_restart_of_the_server_makes_old_versions_expire_and_loses_nothing(client: Client, cluster: Cluster) -> None:
    old = client.list(CONFIG_MAP).version
    client.create(config("before"))
    with reflecting(client) as found:
        found.sync()
        faults.restart(cluster, "kube-apiserver")
        client.delete(CONFIG_MAP, "before")
        client.create(config("after"))
        until(found, lambda: set(data(found)) == {"after"})
    # A server that has just started remembers nothing of the time before.
    with pytest.raises(Expired):
        list(Watch(client, WatchScope(CONFIG_MAP, into=ConfigMapStruct), old, lasts_s=10.0))


def test_silence_ends_a_watch(proxied: Client, api_proxy: ApiProxy) -> None:
    opened: Watch[Any] = Watch(proxied, WatchScope(CONFIG_MAP), proxied.list(CONFIG_MAP).version, silence_s=0.5)
    api_proxy.freeze()
    with pytest.raises(Unreachable, match="timed out"):
        list(opened)


def test_the_server_ends_a_watch_in_time(client: Client) -> None:
    listing = client.list(CONFIG_MAP)
    opened: Watch[Any] = Watch(client, WatchScope(CONFIG_MAP), listing.version, lasts_s=1.5)
    list(opened)
    assert int(opened.version) >= int(listing.version)


def test_close_ends_at_once(client: Client) -> None:
    found = reflecting(client).sync()
    found.close()
    found._thread.join(5.0)
    assert not found._thread.is_alive()
    assert found.wait(found.revision, 60.0) == found.revision


def test_what_is_refused_for_good_is_told_at_once(client: Client, cluster: Cluster) -> None:
    with Reflector(client, JOBSET) as found:
        with pytest.raises(ObjectNotFound):
            found.sync(WITHIN_S)
    file = certificates.write_kubeconfig(cluster, "scheduler", cluster.folder / f"{client.namespace}.kubeconfig")
    with Client.open(environment={"KUBECONFIG": str(file)}, namespace=client.namespace) as other:
        with Reflector(other, CONFIG_MAP) as found:
            with pytest.raises(Forbidden):
                found.sync(WITHIN_S)
            assert found._thread.is_alive(), "it is asked again, for rights that come"
        with Reflector(other, CONFIG_MAP, is_optional=True) as found:
            eventually(lambda: not found._thread.is_alive())
            assert isinstance(found.trouble, Forbidden) and not found.is_synced
        with Reflector(other, POD, into=ConfigMapStruct) as found:
            assert found.sync(WITHIN_S).is_synced
    file.unlink()
