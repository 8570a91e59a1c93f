"""Creation of a sweep in a cluster, with the submitter's own rights: all that trials will be made of, and no trial yet.

The ConfigMap takes the name and owns the rest; the templates come last. Whoever dies before leaves a sweep that is not
finished, of which nobody makes a trial.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from longboat.core.errors import NotFound, Refused, UsageError
from longboat.engines.engine import Engine, Submission
from longboat.engines.kubernetes.creation import create_object, start_of
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.manifests import retry_template, volumes
from longboat.engines.kubernetes.manifests.objects import Owner, attempt_objects, owner_of
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.submit.code.upload import send
from longboat.engines.kubernetes.submit.submission import refusal_of
from longboat.engines.shared.secret_urls import redacted_job
from longboat.kubeapi.errors import AlreadyExists, ApiError, Forbidden, Invalid
from longboat.kubeapi.kinds import CONFIG_MAP
from longboat.sweeps.drive import first_trial
from longboat.sweeps.kubernetes.store import ClusterSweep
from longboat.sweeps.kubernetes.sweep_objects import (
    MOST_TRIALS,
    hash_of,
    object_name,
    shared_objects,
    sweep_map,
    sweep_templates,
    trial_record,
    trial_uid,
)
from longboat.sweeps.record import SweepRecord
from longboat.sweeps.report import planned_trials
from longboat.sweeps.trials import SweepState

Object = dict[str, Any]
replace = msgspec.structs.replace


class NewSweep:
    """A sweep that is about to be created. `first`: what would be submitted as its first trial."""

    def __init__(self, engine: Engine, record: SweepRecord, first: Submission) -> None:
        assert isinstance(engine, KubernetesEngine)
        trial = first_trial(record)
        self.client, self.settings = engine.client, engine.settings
        self.submitter, self.offer = engine.prepared(first)
        self.upload = self.submitter.plan_upload(self.offer)
        self.record = replace(record, job=redacted_job(record.job), namespace=self.client.namespace)
        name, uid = record.run_name(trial.number), trial_uid(record, trial.number)
        offered = self.submitter.record_of(self.offer, name, self.upload, uid)
        self.base = trial_record(offered, self.record, trial, offered.created)
        self.start = start_of(self.base, State(), code=self.upload.manifest, now=self.base.created)
        check_size(self.record, self.base)

    def objects(self, owner: Owner | None) -> list[Object]:
        secrets = {variable: value.encode() for variable, value in self.offer.secrets.items()}
        shared = shared_objects(self.record, self.base, secrets, self.start, owner)
        return [*volumes.claims(self.base.job, self.base.namespace), *shared]

    def create(self) -> None:
        """Raises UsageError where the name is taken, and Refused for what the cluster does not accept."""
        body = sweep_map(self.record, self.base, SweepState(), keep_s=self.settings.keep)
        trial = attempt_objects(self.base, retry_template.FIRST, self.start)
        templates = sweep_templates(self.record, self.base, "", None)
        self.submitter.try_objects([body, *self.objects(None), *trial, *templates])
        try:
            created = self.client.create(body)
        except AlreadyExists:
            raise UsageError(
                f"there is a sweep {self.record.name} already in namespace {self.client.namespace}",
                hint=f"-n NAME names another one, or longboat sweep rm {self.record.name}",
            ) from None
        except (Forbidden, Invalid) as error:
            raise refusal_of(error, body) from error
        try:
            self._bring(created)
        except BaseException as error:
            # Half a sweep is of no use to anybody; what was made goes with the record.
            with contextlib.suppress(ApiError):
                self.client.delete(CONFIG_MAP, body["metadata"]["name"], uid=str(created["metadata"]["uid"]))
            if isinstance(error, (Forbidden, Invalid)):
                raise refusal_of(error, {"kind": "sweep", "metadata": {"name": self.record.name}}) from error
            raise

    def _bring(self, created: Object) -> None:
        owner = owner_of(created)
        environment = self.offer.submission.environment
        stayed = send(self.client, self.submitter.store, self.upload, self.base, owner, environment)
        made = [create_object(self.client, each, owner=owner["uid"]) for each in self.objects(owner)]
        (secret,) = (
            each for each in made if each["metadata"]["name"] == object_name(self.record.name) and "data" in each
        )
        pin = retry_template.pin_of(hash_of(created["data"]), secret)
        stayed()
        for each in sweep_templates(self.record, self.base, pin, owner):
            create_object(self.client, each, owner=owner["uid"])


def check_size(record: SweepRecord, base: Record) -> None:
    """Raise Refused for what a ConfigMap cannot hold, and for code that only fits a run's own storage."""
    assert record.job.sweep is not None  # whoever makes a record has looked
    planned = planned_trials(record.job.sweep)
    if planned > MOST_TRIALS:
        raise Refused(
            f"a sweep in a cluster has at most {MOST_TRIALS} trials, and this one has {planned}",
            hint="`trials` bounds them; or begin several sweeps",
        )
    if base.stored_packs:
        raise Refused(
            "the code is too large for Secrets, and trials share no storage of their own",
            hint="`longboat config set kubernetes.storage.url s3://BUCKET/PREFIX` gives it a place",
        )


def found_in_cluster(engine: Engine, name: str) -> SweepRecord | None:
    """The sweep of this name that is in the cluster already."""
    assert isinstance(engine, KubernetesEngine)
    try:
        return replace(ClusterSweep(engine.client, name).read().record, context=engine.client.context)
    except NotFound:
        return None
