"""Creation of a prepared run in the cluster: try every object, take the name, upload the code, hand over.

Creating the record takes the name: of several submitters one wins, and the others get its run or the next name. All of
the first attempt is made here, with the submitter's own rights, and the templates of which later attempts are copies.
Who dies before leaves a run that holds nothing: submitting the same again finishes it, else it is given up in the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from longboat.bundles.store import BundleStore
from longboat.core.errors import Refused
from longboat.core.guards.formats import PLAIN, SPARES
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.creation import WORKLOADS, create_object, make_first, start_of, templates_of
from longboat.engines.kubernetes.explain.admission_errors import admission_trouble
from longboat.engines.kubernetes.manifests import objects as manifests
from longboat.engines.kubernetes.manifests.dropped_fields import dropped_fields
from longboat.engines.kubernetes.manifests.network_policy import SWITCH
from longboat.engines.kubernetes.manifests.volumes import places, run_storage
from longboat.engines.kubernetes.record_store import hash_of_record, is_record, read_record, read_stop
from longboat.engines.kubernetes.records import Record, State, at_present
from longboat.engines.kubernetes.settings import ClusterSettings
from longboat.engines.kubernetes.status import STARTING
from longboat.engines.kubernetes.submit.code.upload import (
    Upload,
    plan_upload,
    send,
)
from longboat.engines.kubernetes.submit.free_names import free_names
from longboat.engines.kubernetes.submit.planned_pods import is_gated, pod_fields, queue_of
from longboat.engines.kubernetes.submit.preparation import PreparedRun
from longboat.engines.kubernetes.submit.submission_heartbeat import beating
from longboat.engines.shared.home import Home, current_user
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, ApiError, Forbidden, Invalid
from longboat.kubeapi.kinds import CONFIG_MAP

Object = dict[str, Any]
Notice = Callable[[str], None]

AT_ONCE = 4  # an upload is bound by the line, and few connections fill it
LARGE_UPLOAD = 8 << 20
"""Bytes. Over an ordinary line they take seconds, and whoever waits should know for what."""


class Submitter:
    """Hands jobs over to one cluster, in one namespace."""

    def __init__(self, client: Client, settings: ClusterSettings, home: Home, notice: Notice) -> None:
        self.client = client
        self.settings = settings
        self.home = home
        self.store = BundleStore(home.folder("bundles"))
        self.notice = notice

    def record_of(self, offer: PreparedRun, name: str, upload: Upload | None = None, uid: str | None = None) -> Record:
        job, settings, capabilities, code = offer.job, self.settings, offer.capabilities, offer.code
        uid = uid or os.urandom(6).hex()
        queue = queue_of(job, settings, capabilities)
        fields = pod_fields(job, settings, capabilities, queue=queue, run=name, uid=uid)
        kept = places(job, fields["storage"], run=name, uid=uid)
        return Record(
            format=SPARES if offer.job.spares else PLAIN,
            name=name,
            uid=uid,
            job=job,
            namespace=self.client.namespace,
            created=self.client.now(),
            user=current_user(),
            gate_s=settings.gate_s,
            node_lost_s=settings.node_lost,
            log_wait_s=settings.log_wait_s,
            stdin=offer.submission.stdin is not None and job.ranks == 1,
            gated_by="kueue" if queue is not None else "longboat" if is_gated(job) else "none",
            bundle=code.hash if code else None,
            packs=upload.packs if upload else (),
            stored_packs=upload.stored if upload else (),
            code_store=upload.code_store if upload else None,
            launcher=upload.launcher if upload else "",
            commit=code.commit if code else None,
            dirty=bool(code and code.dirty),
            checkpoint_dir=kept.checkpoints,
            checkpoint_store=kept.store,
            artifacts_dir=kept.artifacts,
            resume_from=offer.resume_from,
            after=offer.after,
            secrets={variable: (names.env_secret(name), variable) for variable in offer.secrets},
            queue=queue,
            queue_priority=(offer.queue_priority or settings.priority_class) if queue is not None else None,
            network_policy=settings.network_policy and capabilities.can_isolate,
            notices=offer.notices,
            **fields,
        )

    def submit(self, offer: PreparedRun, run_id: str | None) -> Record | None:
        """Create the run. None when the run id was taken meanwhile."""
        for text in offer.notices:
            self.notice(text)
        upload = self.plan_upload(offer)
        is_tried = False
        for name in [run_id] if run_id is not None else free_names(self.client, offer.job.name, offer.taken):
            record = self.record_of(offer, name, upload)
            if not is_tried:
                self.try_objects(
                    [*self.objects_of(offer, record, upload), *templates_of(at_present(record, State()), "", {}, None)]
                )
                is_tried = True
            created = self._take_name(record, is_chosen=run_id is not None)
            if created is not None and _uid_of(created) == record.uid:
                self._hand_over(offer, record, upload, created)
                return record
            if created is not None:
                theirs = read_record(created)[0]
                if is_same_submission(created, self.record_of(offer, name, upload, theirs.uid)):
                    self._bring(offer, theirs, upload, created)
                    return theirs
        return None

    def plan_upload(self, offer: PreparedRun) -> Upload:
        storage = run_storage(offer.job, self.settings.storage, run=offer.job.name, uid="0" * 8)
        return plan_upload(
            self.client,
            self.store,
            offer.code,
            has_storage=storage is not None,
            code_store=self.settings.code_store,
            there=offer.packs,
        )

    def _take_name(self, record: Record, *, is_chosen: bool) -> Object | None:
        """The record as it was created, or the one that has the chosen name; None when a name is not to be had."""
        body = manifests.record_object(record, State(reason=STARTING))
        if self.settings.keep is not None:
            body["metadata"]["annotations"][names.KEEP] = f"{self.settings.keep:.0f}"
        try:
            return self.client.create(body)
        except AlreadyExists:
            name = self.client.find(CONFIG_MAP, record.name)
        except (Forbidden, Invalid) as error:
            raise refusal_of(error, body) from error
        if name is not None and _uid_of(name) == record.uid:
            return name  # our own first request, whose answer was lost
        if is_chosen and name is not None and is_record(name):
            return name
        if is_chosen and name is not None and not is_record(name):
            raise Refused(
                f"{record.name} is the name of a ConfigMap of namespace {self.client.namespace} that is not a run",
                hint="choose another run id",
            )
        return None

    def objects_of(
        self, offer: PreparedRun, record: Record, upload: Upload, owner: manifests.Owner | None = None
    ) -> list[Object]:
        """All objects but the record and the code, in the order of their creation."""
        secrets = {variable: value.encode() for variable, value in offer.secrets.items()}
        start = start_of(record, State(), code=upload.manifest, now=record.created)
        return [
            *manifests.run_objects(record, secrets, owner=owner),
            *manifests.attempt_objects(at_present(record, State()), 0, start, owner=owner),
        ]

    def try_objects(self, objects: Sequence[Object]) -> None:
        """Create everything as a trial: a field that is refused, or dropped without a word, is an error now."""

        def attempt(body: Object) -> list[str]:
            try:
                returned = self.client.create(body, dry_run=True)
            except AlreadyExists:
                return []
            except (Forbidden, Invalid) as error:
                raise refusal_of(error, body) from error
            return [f"{body['kind']}: {field}" for field in dropped_fields(body, returned)]

        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            lost = [field for fields in pool.map(attempt, objects) for field in fields]
        if lost:
            raise Refused(
                f"this cluster (Kubernetes {self.client.server}) silently drops: {', '.join(lost[:8])}",
                hint="the field is behind a feature gate or too new for this cluster; see `longboat doctor`",
            )

    def _hand_over(self, offer: PreparedRun, record: Record, upload: Upload, created: Object) -> None:
        try:
            self._bring(offer, record, upload, created)
        except BaseException as error:
            # Half a run is of no use to anybody; what was made goes with the record.
            with contextlib.suppress(ApiError):
                self.client.delete(CONFIG_MAP, record.name, uid=str(created["metadata"]["uid"]))
            if isinstance(error, (Forbidden, Invalid)):
                raise refusal_of(error, {"kind": "run", "metadata": {"name": record.name}}) from error
            raise

    def _bring(self, offer: PreparedRun, record: Record, upload: Upload, created: Object) -> None:
        """Code and objects of a run whose record is there. What is there already must be the same."""
        owner = manifests.owner_of(created)
        objects = self.objects_of(offer, record, upload, owner)
        attempt = names.attempt_name(record.name, 0)
        is_last = [
            each["kind"] in WORKLOADS or (each["kind"], each["metadata"]["name"]) == ("Secret", attempt)
            for each in objects
        ]
        with beating(self.client, record.name), ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            environment = offer.submission.environment
            if upload.size >= LARGE_UPLOAD:
                from longboat.storage.progress import size_words

                self.notice(f"{size_words(upload.size)} of code are sent to the cluster")
            sent = pool.submit(send, self.client, self.store, upload, record, owner, environment)
            first = [each for each, last in zip(objects, is_last) if not last]
            list(pool.map(lambda each: create_object(self.client, each, owner=owner["uid"]), first))
            stayed = pool.submit(sent.result())
            last = [each for each, last in zip(objects, is_last) if last]
            make_first(self.client, at_present(record, State()), hash_of_record(created), last, owner)
            stayed.result()


def refusal_of(error: ApiError, body: Mapping[str, Any]) -> Refused:
    """The API server's refusal in our words."""
    trouble = admission_trouble(error.message)
    name = f"{body['kind']} {body['metadata'].get('name', '')}"
    if trouble is not None:
        return Refused(trouble.what, hint=trouble.hint)
    hint = f"`{SWITCH}` submits without one" if body["kind"] == "NetworkPolicy" else error.hint
    return Refused(f"the cluster does not accept {name}: {error.message}", hint=hint)


def is_same_submission(body: Mapping[str, Any], record: Record) -> bool:
    """Whether a record is what we would submit, with its own uid, and its submitter has not finished, or died.

    All of it is compared: what is made of it is made with our rights.
    """
    theirs, state = read_record(body)
    if state != State(reason=STARTING) or read_stop(body) is not None:
        return False
    ours = msgspec.structs.replace(at_present(record, State()), created=theirs.created, notices=theirs.notices)
    return theirs == ours


def _uid_of(body: Mapping[str, Any]) -> str | None:
    """Ours, not Kubernetes': of the run that a record is about."""
    uid = (body["metadata"].get("annotations") or {}).get(f"{names.DOMAIN}/uid")
    return None if uid is None else str(uid)
