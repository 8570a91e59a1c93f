"""kubeconfig files, merged and resolved as kubectl does, or a pod's service account: which cluster, and as whom.

Files are merged as kubectl merges them: the first that names something wins, paths in a file are relative to it.
Not here: tokens and certificates themselves, which may change while we run (`credentials`).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from longboat.core.words import nearest
from longboat.kubeapi.errors import KubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = "in-cluster"
AS, AS_GROUPS = "LONGBOAT_AS", "LONGBOAT_AS_GROUPS"
"""Whom to impersonate in clusters, as `kubectl --as` and `--as-group` do."""
NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A DNS label, as Kubernetes demands of it."""
_LISTS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class ClusterAccess(NamedTuple):
    """One way to one server. `cluster` and `user` are the entries of the kubeconfig, their paths made absolute."""

    context: str
    namespace: str
    server: str
    cluster: dict[str, Any]
    user: dict[str, Any]


class Kubeconfig(NamedTuple):
    """All files as one."""

    files: tuple[str, ...]
    current: str
    clusters: dict[str, dict[str, Any]]
    users: dict[str, dict[str, Any]]
    contexts: dict[str, dict[str, Any]]


def files_of(environment: Mapping[str, str]) -> list[Path]:
    """The files that count, in order. KUBECONFIG may name several."""
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return [Path(part).expanduser() for part in dict.fromkeys(named)]
    home = environment.get("HOME") or str(Path.home())
    return [Path(home, ".kube", "config")]


def read(files: Iterable[Path]) -> Kubeconfig:
    """Every file that is there, merged. Without any: empty."""
    merged = Kubeconfig((), "", {}, {}, {})
    for file in files:
        content = _parse(file)
        if content is None:
            continue
        merged = merged._replace(
            files=(*merged.files, str(file)), current=merged.current or str(content.get("current-context") or "")
        )
        for plural, singular in _LISTS:
            known: dict[str, dict[str, Any]] = getattr(merged, plural)
            for name, entry in _entries(file, content, plural, singular):
                known.setdefault(name, entry)
    return merged


def _parse(file: Path) -> dict[str, Any] | None:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(file.read_bytes(), loader)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KubeconfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        # The problem and its line; the text itself may hold a token.
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else str(file)
        raise KubeconfigError(f"{place}: not YAML: {getattr(error, 'problem', None) or 'unreadable'}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or content.get("kind", "Config") != "Config":
        raise KubeconfigError(f"{file}: not a kubeconfig", hint="a kubeconfig says `kind: Config`")
    return content


def _entries(file: Path, content: dict[str, Any], plural: str, singular: str) -> Iterable[tuple[str, dict[str, Any]]]:
    items = content.get(plural) or []
    if not isinstance(items, list):
        raise KubeconfigError(f"{file}: {plural}: not a list")
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get(singular) or {}, dict):
            raise KubeconfigError(f"{file}: {plural}: an entry has no `name` and `{singular}`")
        yield str(item.get("name", "")), _with_absolute_paths(file, dict(item.get(singular) or {}))


def _with_absolute_paths(file: Path, entry: dict[str, Any]) -> dict[str, Any]:
    folder = file.absolute().parent
    for key in _PATHS:
        if entry.get(key):
            entry[key] = str(folder / str(entry[key]))
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        entry["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return entry


def choose(config: Kubeconfig, context: str | None, namespace: str | None) -> ClusterAccess:
    """The access of a context: the current one unless named."""
    wanted = context or config.current
    if not wanted:
        known = ", ".join(sorted(config.contexts)) or "none"
        raise KubeconfigError(
            f"no context is chosen in {_file_names(config)}",
            hint=f"name one of its contexts, or set `current-context`: {known}",
        )
    chosen = config.contexts.get(wanted)
    if chosen is None:
        raise KubeconfigError(f"no context {wanted!r} in {_file_names(config)}", hint=_nearest(wanted, config.contexts))
    cluster_name, user_name = str(chosen.get("cluster") or ""), str(chosen.get("user") or "")
    cluster = config.clusters.get(cluster_name)
    if cluster is None:
        raise KubeconfigError(
            f"context {wanted!r} names the cluster {cluster_name!r}, which is not in {_file_names(config)}"
        )
    user = config.users.get(user_name) if user_name else {}
    if user is None:
        raise KubeconfigError(f"context {wanted!r} names the user {user_name!r}, which is not in {_file_names(config)}")
    server = str(cluster.get("server") or "")
    if not server:
        raise KubeconfigError(f"cluster {cluster_name!r} in {_file_names(config)} has no server")
    if "://" not in server:
        server = f"http://{server}"  # as kubectl takes it
    return ClusterAccess(
        wanted, namespace or str(chosen.get("namespace") or "default"), server.rstrip("/"), cluster, user
    )


def _file_names(config: Kubeconfig) -> str:
    return ", ".join(config.files) or "the kubeconfig"


def _nearest(wanted: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = nearest(wanted, names)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"contexts: {', '.join(names) or 'none'}"


def in_cluster(environment: Mapping[str, str], namespace: str | None = None) -> ClusterAccess | None:
    """The access a pod has by its service account; None outside of a pod."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    token = SERVICE_ACCOUNT / "token"
    if not host or not port or not token.is_file():
        return None
    if not namespace:
        try:
            namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
        except OSError:
            namespace = ""
    shown = f"[{host}]" if ":" in host else host
    cluster = {"server": f"https://{shown}:{port}", "certificate-authority": str(SERVICE_ACCOUNT / "ca.crt")}
    return ClusterAccess(IN_CLUSTER, namespace or "default", cluster["server"], cluster, {"tokenFile": str(token)})


def find(context: str | None, namespace: str | None, environment: Mapping[str, str]) -> ClusterAccess:
    """The access asked for: from the kubeconfig, else from the pod we are in."""
    access = _find(context, namespace, environment)
    if environment.get(AS):
        groups = [group.strip() for group in environment.get(AS_GROUPS, "").split(",")]
        entry = {"as": environment[AS].strip(), "as-groups": [group for group in groups if group]}
        access = access._replace(user={**access.user, **entry})
    if not re.fullmatch(NAMESPACE, access.namespace):
        hint = "lower-case letters, digits and -, at most 63 characters; `kubectl get namespaces` lists them"
        raise KubeconfigError(f"{access.namespace!r} is not the name of a namespace", hint=hint)
    return access


def _find(context: str | None, namespace: str | None, environment: Mapping[str, str]) -> ClusterAccess:
    files = files_of(environment)
    config = read(files)
    if context != IN_CLUSTER or IN_CLUSTER in config.contexts:
        if config.contexts or context:
            if not config.files:
                raise _no_file(files)
            return choose(config, context, namespace)
    access = in_cluster(environment, namespace)
    if access is None:
        if config.files and context != IN_CLUSTER:
            return choose(config, context, namespace)
        raise _no_file(files)
    return access


def _no_file(files: list[Path]) -> KubeconfigError:
    named = ", ".join(str(file) for file in files)
    return KubeconfigError(
        f"no kubeconfig: {named} {'is' if len(files) == 1 else 'are'} not there",
        hint="set KUBECONFIG to the file your cluster's administrator or provider gave you",
    )


def pem(entry: Mapping[str, Any], key: str) -> bytes | None:
    """`<key>-data` (base64), else the content of the file `<key>`."""
    data = entry.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=False)
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"{key}-data: not base64") from None
    if not entry.get(key):
        return None
    try:
        return Path(str(entry[key])).read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{entry[key]}: cannot be read: {error.strerror or error}") from error
