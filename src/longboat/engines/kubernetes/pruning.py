"""Removal of the objects of ended runs by age, when somebody asks for it. By the controller: `expiry`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from longboat.core.errors import EngineError, LongboatError, NotFound
from longboat.core.runs import PrunedItem, PruneQuery, RunStatus
from longboat.core.words import counted, listing
from longboat.engines.kubernetes.expiry import expire
from longboat.engines.kubernetes.observe.node_loss import with_losses
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.removal import wait_until_gone
from longboat.engines.kubernetes.status import brief_status
from longboat.engines.lifecycle.pruning import expired
from longboat.engines.shared.home import current_user
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Unreachable


def prunable(
    runs: Sequence[RunStatus], query: PruneQuery, followed: set[str], notice: Callable[[str], None]
) -> Sequence[RunStatus]:
    """Runs of the caller, or of everybody; that others' stay is told once (`followed`). A record's user is anybody's
    word: this keeps mistakes away, and rights of the cluster keep strangers away."""
    own = current_user()
    if query.all_users:
        return runs
    others = {item.name for item in expired([run for run in runs if run.expired is None], query) if item.user != own}
    if others - followed:
        followed |= others
        stay = "stays: --all-users takes it too" if len(others) == 1 else "stay: --all-users takes them too"
        notice(f"{counted(len(others), 'run')} of others {stay}")
    return [run for run in runs if run.user == own]


def prune(
    client: Client, runs: Sequence[RunStatus], query: PruneQuery, turn: Callable[[str], RunSnapshot]
) -> Iterator[PrunedItem]:
    """One that cannot be removed is told with the reason, and the others go.

    A list tells how a run has ended before that is written down. So a `turn` of it is taken first, which writes down
    its exit code and last lines, and returns what is there then.
    """
    for item in expired([run for run in runs if run.expired is None], query):
        try:
            is_gone = query.dry_run or _remove(client, turn(item.name), query)
        except NotFound:
            continue  # somebody else has removed it meanwhile
        except Unreachable:
            raise
        except LongboatError as error:
            yield msgspec.structs.replace(item, problem=error.message)
            continue
        if is_gone:
            yield item


def _remove(client: Client, snapshot: RunSnapshot, query: PruneQuery) -> bool:
    """Whether the run was there and is gone now. Raises EngineError."""
    record, state = snapshot.record, snapshot.state
    if state.expired is not None or snapshot.is_deleting:
        return False
    if not list(expired([brief_status(record, state)], query)):
        raise EngineError(f"{record.name} is {state.phase}, and not as it was listed: it stays")
    going = [pod.name for pod in with_losses(snapshot, client.now()).pods if pod.end is None]
    if going:
        raise EngineError(f"{record.name} has ended, but pods of it go on: {listing(going, 3)}")
    expire(client, snapshot)
    wait_until_gone(client, record.name, snapshot.uid, record)
    return True
