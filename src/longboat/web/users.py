"""Users of a dashboard behind an authenticating proxy: each asks clusters in their own name, by impersonation.

The list of runs is watched once, with the dashboard's own rights; who may not list them there is told nothing of it.
Everything about one run, and every change, is asked for as the user: the cluster's RBAC decides.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import ACCESS_REVIEW
from longboat.kubeapi.kubeconfig import AS, AS_GROUPS
from longboat.web.access import WebUser
from longboat.web.answers import Rejected
from longboat.web.places import ShownPlace

KNOWN_S = 30.0
"""How long an answer about somebody's rights holds: one who lost them is out after that."""
MOST_USERS = 256
"""Whose connections are kept; the longest unused go first."""


class PlaceUsers:
    """The places of a dashboard as each user has them."""

    def __init__(self, places: Sequence[ShownPlace]) -> None:
        self._places = list(places)
        self._known: OrderedDict[WebUser, tuple[float, list[ShownPlace]]] = OrderedDict()
        self._lock = threading.Lock()

    def places(self, user: WebUser) -> list[ShownPlace]:
        """Raises Rejected for a user who may not list runs there."""
        now = time.monotonic()
        with self._lock:
            checked, opened = self._known.get(user, (-KNOWN_S, []))
        if now - checked < KNOWN_S:
            return opened
        opened = opened or [as_user(place, user) for place in self._places]
        for place in opened:
            check_reader(place, user)
        with self._lock:
            self._known[user] = (now, opened)
            self._known.move_to_end(user)
            while len(self._known) > MOST_USERS:
                self._known.popitem(last=False)
        return opened


def as_user(place: ShownPlace, user: WebUser) -> ShownPlace:
    engine = place.engine
    assert isinstance(engine, KubernetesEngine), "this machine has no users"
    environment = {**engine.environment, AS: user.name, AS_GROUPS: ",".join(user.groups)}
    asked = KubernetesEngine(context=place.context, namespace=engine.client.namespace, environment=environment)
    asked.takes_over = engine.takes_over
    return place._replace(engine=asked, user="\n".join((user.name, *user.groups)))


def check_reader(place: ShownPlace, user: WebUser) -> None:
    """Ask the API server, as the user, whether the user may list the records of runs."""
    assert isinstance(place.engine, KubernetesEngine)
    client = place.engine.client
    wanted = {"namespace": client.namespace, "verb": "list", "resource": "configmaps"}
    review = {"apiVersion": ACCESS_REVIEW.api_version, "kind": ACCESS_REVIEW.kind}
    answer = client.create({**review, "spec": {"resourceAttributes": wanted}})
    if not (answer.get("status") or {}).get("allowed"):
        raise Rejected(
            403,
            f"{user.name} may not list runs in namespace {client.namespace}",
            hint="docs/kubernetes.md has the role that an administrator of the namespace binds",
        )
