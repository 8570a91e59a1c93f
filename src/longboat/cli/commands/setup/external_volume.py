"""`longboat volume create` over storage outside of the cluster: EFS, an NFS server, a folder of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longboat.cli.output.terminal import clean, say
from longboat.core.errors import UsageError
from longboat.core.jobs import Value

if TYPE_CHECKING:
    from longboat.engines.kubernetes.exec.claims import ClaimRequest, VolumeView
    from longboat.engines.kubernetes.exec.static_volumes import ExternalStorage
    from longboat.kubeapi.client import Client

NEW = "new"
"""`--efs` without an id."""
EFS_S = 300.0  # mount targets of several zones become available after a minute or two
BIND_S = 60.0  # claim and volume name each other: the cluster binds them within seconds


class ExternalChoice(Value, frozen=True):
    """Options that name storage outside of the cluster; at most one of the first three."""

    efs: str | None = None  # NEW, or an id
    nfs: str | None = None
    host_path: str | None = None
    region: str | None = None
    eks: str | None = None

    @property
    def is_given(self) -> bool:
        return any((self.efs, self.nfs, self.host_path))


def check_choice(choice: ExternalChoice, storage_class: str | None) -> None:
    """Raises UsageError."""
    given = [
        name
        for name, value in (
            ("--efs", choice.efs),
            ("--nfs", choice.nfs),
            ("--host-path", choice.host_path),
            ("--class", storage_class),
        )
        if value
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: a volume is in one place", hint=f"only {given[0]}, for instance")
    if choice.efs is None and (choice.region or choice.eks):
        raise UsageError("--region and --eks go with --efs")
    if choice.eks and not choice.region:
        raise UsageError("--eks needs --region", hint="--region us-east-1")
    if choice.efs not in (None, NEW):
        from longboat.clusters.cloud.aws.efs.file_system import ID

        if not ID.fullmatch(str(choice.efs)):
            hint = "the name of the volume comes before --efs; an id looks like fs-0a1b2c3d"
            raise UsageError(f"--efs {choice.efs}: not an id of EFS", hint=hint)


def create_external(
    client: Client, claim: ClaimRequest, choice: ExternalChoice, *, timeout_s: float | None
) -> VolumeView:
    from longboat.engines.kubernetes.exec.static_volumes import (
        check_free,
        create_static,
        folder_storage,
        nfs_storage,
    )

    if choice.nfs:
        storage = nfs_storage(choice.nfs)
    elif choice.host_path:
        storage = folder_storage(choice.host_path)
    else:
        check_free(client, claim)
        storage = efs_storage(client, claim, choice, EFS_S if timeout_s is None else timeout_s)
    return create_static(client, claim, storage, timeout_s=BIND_S if timeout_s is None else timeout_s)


def efs_storage(client: Client, claim: ClaimRequest, choice: ExternalChoice, timeout_s: float) -> ExternalStorage:
    from longboat.clouds.aws.session import AwsSession
    from longboat.clusters.cloud.aws.efs.file_system import prepare
    from longboat.clusters.cloud.aws.efs.network import find_network, machines_of, region_of
    from longboat.engines.kubernetes.exec.static_volumes import NFS_OPTIONS, nfs_storage
    from longboat.kubeapi.kinds import NODE

    ids = [str((node.get("spec") or {}).get("providerID") or "") for node in client.list(NODE).items]
    machines = machines_of(ids)
    session = AwsSession(region_of(machines, choice.region))
    network = find_network(session, machines, choice.eks)
    system = prepare(
        session,
        network,
        volume=f"{client.namespace}/{claim.name}",
        id=None if choice.efs == NEW else choice.efs,
        timeout_s=timeout_s,
        say=lambda text: say(f"longboat: {clean(text)}"),
    )
    return nfs_storage(f"{system.server}:/", NFS_OPTIONS)
