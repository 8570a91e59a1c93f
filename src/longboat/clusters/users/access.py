"""Gives a user access to a namespace of a cluster, lists users, takes access away. Needs an administrator's rights.

A user logs in with a token of his ServiceAccount: the server takes it no longer once the account is gone. A client
certificate could not be taken back before it ends, which is why there are none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.clusters.users import user_objects
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.jobs import Value
from longboat.core.times import parse_time
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, Forbidden
from longboat.kubeapi.kinds import NAMESPACE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT

Object = dict[str, Any]

ADMIN_HINT = "an administrator of the cluster does this: --on names his context"


class UserGrant(Value, frozen=True):
    """The kubeconfig made for a user, and notes for the administrator."""

    kubeconfig: Object
    expires: float | None = None
    is_shorter: bool = False
    """The server allows no token that lasts as long as was asked for."""
    made_namespace: bool = False
    is_unconfined: bool = False
    """Nothing keeps pods of the namespace from being root on their node."""


class UserView(Value, frozen=True):
    name: str
    namespaces: tuple[str, ...] = ()
    created: float | None = None
    expires: float | None = None
    """When his newest token ends."""


def add_user(client: Client, name: str, namespace: str, *, days: int) -> UserGrant:
    """Create missing objects and a new token. Earlier tokens stay valid until they expire or the user is removed."""
    user_objects.check_user(name)
    user_objects.check_namespace(namespace)
    try:
        make_namespace(client, user_objects.ACCOUNTS)
        made = make_namespace(client, namespace)
        put_account(client, name)
        for body in user_objects.right_objects(name, namespace):
            client.apply(body)
        token, expires = new_token(client, name, days)
    except Forbidden as error:
        raise EngineError(f"you may not make users here: {error.message}", hint=ADMIN_HINT) from None
    labels = client.get(NAMESPACE, namespace)["metadata"].get("labels") or {}
    return UserGrant(
        kubeconfig=user_objects.kubeconfig_of(name, namespace, token, client.transport.access),
        expires=expires,
        is_shorter=expires is not None and expires < client.now() + days * 86400 - 3600,
        made_namespace=made,
        is_unconfined=labels.get(user_objects.ENFORCE) not in ("baseline", "restricted"),
    )


def make_namespace(client: Client, namespace: str) -> bool:
    """Create a namespace; False if it exists, which is left as it is, with its quotas and labels."""
    if client.find(NAMESPACE, namespace) is not None:
        return False
    try:
        client.create(user_objects.namespace_object(namespace))
    except AlreadyExists:
        return False
    return True


def put_account(client: Client, name: str) -> None:
    known = client.find(SERVICE_ACCOUNT, name, namespace=user_objects.ACCOUNTS)
    if known is not None and not is_ours(known):
        hint = f"kubectl delete serviceaccount {name} --namespace {user_objects.ACCOUNTS}, or choose another name"
        raise UsageError(f"the account {name} was not made by Longboat", hint=hint)
    client.apply(user_objects.account_object(name))


def is_ours(body: Object) -> bool:
    labels = body["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in user_objects.OURS.items())


def new_token(client: Client, name: str, days: int) -> tuple[str, float | None]:
    path = client.path(SERVICE_ACCOUNT, user_objects.ACCOUNTS, name, "token")
    answer = client.request("POST", path, body=user_objects.token_request(days), may_repeat=True)
    status: Object = msgspec.json.decode(answer)["status"]
    until = {"metadata": {"annotations": {user_objects.EXPIRES: status.get("expirationTimestamp") or ""}}}
    client.patch(SERVICE_ACCOUNT, name, until, namespace=user_objects.ACCOUNTS)
    return str(status["token"]), parse_time(status.get("expirationTimestamp"))


def list_users(client: Client) -> tuple[UserView, ...]:
    accounts = client.list(SERVICE_ACCOUNT, namespace=user_objects.ACCOUNTS, labels=user_objects.SELECTOR).items
    bound: dict[str, list[str]] = {}
    for binding in bindings(client):
        metadata = binding["metadata"]
        bound.setdefault(metadata["labels"].get(user_objects.USER, ""), []).append(metadata["namespace"])
    return tuple(
        UserView(
            name=account["metadata"]["name"],
            namespaces=tuple(sorted(bound.get(account["metadata"]["name"], ()))),
            created=parse_time(account["metadata"].get("creationTimestamp")),
            expires=parse_time((account["metadata"].get("annotations") or {}).get(user_objects.EXPIRES)),
        )
        for account in sorted(accounts, key=lambda each: str(each["metadata"]["name"]))
    )


def bindings(client: Client) -> list[Object]:
    return client.list(ROLE_BINDING, everywhere=True, labels=user_objects.SELECTOR).items


def remove_user(client: Client, name: str, namespace: str | None = None) -> tuple[str, ...]:
    """Revoke access to a namespace, or to all together with the account; returns the namespaces. Runs stay."""
    user_objects.check_user(name)
    account = client.find(SERVICE_ACCOUNT, name, namespace=user_objects.ACCOUNTS)
    if account is not None and not is_ours(account):
        raise UsageError(f"the account {name} was not made by Longboat")
    all_bindings = bindings(client)
    places = [
        binding["metadata"]["namespace"]
        for binding in all_bindings
        if binding["metadata"]["labels"].get(user_objects.USER) == name
    ]
    lost = [place for place in places if namespace in (None, place)]
    if not lost and (account is None or namespace is not None):
        where = f" of namespace {namespace}" if namespace else ""
        raise NotFound(f"no user {name}{where}", hint="longboat cluster user ls lists them")
    # The account first: from then on its tokens are refused, whatever else fails.
    if account is not None and set(lost) == set(places):
        client.delete(SERVICE_ACCOUNT, name, namespace=user_objects.ACCOUNTS)
    for place in lost:
        client.delete(ROLE_BINDING, user_objects.binding_name(name), namespace=place)
        if sum(binding["metadata"]["namespace"] == place for binding in all_bindings) == 1:
            client.delete(ROLE, user_objects.ROLE_NAME, namespace=place)
    return tuple(sorted(lost))
