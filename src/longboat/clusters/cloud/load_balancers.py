"""Load balancers that Services of a cluster have from its cloud: asked for and given back before the cluster goes.

Only the cluster knows which are its own; without it they stay, and cost money.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from longboat.core.errors import EngineError
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import INGRESS, SERVICE

Say = Callable[[str], None]
GIVEN_BACK_S = 300.0  # a cloud takes a minute or two for one
_LOOK_S = 2.0  # one request; a cloud takes a minute or two


def holders(client: Client) -> list[tuple[str, str, str, str]]:
    """Kind, namespace, name and uid of what has a load balancer, or will have one."""
    services = [
        body for body in client.list(SERVICE, everywhere=True).items if body["spec"].get("type") == "LoadBalancer"
    ]
    ingresses = client.list(INGRESS, everywhere=True).items
    listed = [("Service", body) for body in services] + [("Ingress", body) for body in ingresses]
    metas = [(kind, body["metadata"]) for kind, body in listed]
    return sorted((kind, meta["namespace"], meta["name"], meta["uid"]) for kind, meta in metas)


def give_back(client: Client, say: Say, *, timeout_s: float = GIVEN_BACK_S) -> int:
    """Delete them, and wait until the cloud has taken its part away: until then Kubernetes keeps them. How many.

    Whoever makes one anew under its name, as GitOps does, is not waited for. Raises EngineError for those that stay.
    """
    there = holders(client)
    for kind, namespace, name, _ in there:
        client.delete(SERVICE if kind == "Service" else INGRESS, name, namespace=namespace)
        say(f"longboat: the load balancer of the {kind} {namespace}/{name} is given back")
    deadline = time.monotonic() + timeout_s
    while left := [each for each in holders(client) if each in there]:
        if time.monotonic() > deadline:
            kind, namespace, name, _ = left[0]
            raise EngineError(
                f"{kind} {namespace}/{name} does not go: its load balancer is still there",
                hint=f"kubectl describe {kind.lower()} -n {namespace} {name} says why; then the same command again",
            )
        time.sleep(_LOOK_S)
    return len(there)
