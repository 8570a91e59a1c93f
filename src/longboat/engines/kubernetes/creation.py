"""Creates the objects of a run, and never uses one that somebody else put in their place.

Names follow from run and attempt, so two processes that do the same find each other's objects, and anybody who may
create, say, Secrets can create one of such a name beforehand. What is there already is used only if it is what we
would have made: owned by the record, with the same content. Whoever makes a later attempt makes it of the templates
that the submitter created (`retry_template`). Not the decision to make one (`decide`).
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import gang_file, pod_template, retry_template
from longboat.engines.kubernetes.manifests.gang_file import CodeManifest
from longboat.engines.kubernetes.manifests.objects import AttemptStart, Owner, attempt_objects, retry_templates
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import Record, State
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import CLAIM_TEMPLATE, JOB, JOBSET, SECRET, kind_of

Object = dict[str, Any]

WORKLOADS = ("Job", "JobSet")
AT_ONCE = 4  # templates of one run; more would trip the client's own limit of requests
LEAST_TIMEOUT_S = 1.0  # a deadline of 0 is refused by the API server


class ForeignObject(EngineError):
    """An object of a name that a run needs is there, and it is not of this run."""


class CannotRetry(EngineError):
    """There is no template that vouches for another attempt of this run."""


def create_object(client: Client, body: Object, *, owner: str, same_token: bool = True) -> Object:
    """Create it; or the one that is there, if it is the same. Raises Foreign.

    `owner` is the uid of the record. `same_token` False: a Secret whose token alone is another is the same, as one that
    an earlier try of the same submission made.
    """
    try:
        return client.create(body)
    except AlreadyExists:
        pass
    name = f"{body['kind']} {body['metadata']['name']}"
    try:
        existing = client.find(kind_of(body), body["metadata"]["name"], namespace=body["metadata"].get("namespace"))
    except Forbidden as error:
        raise ForeignObject(f"there is a {name} already, and it cannot be read: {error.message}") from error
    if existing is None:
        return client.create(body)  # just removed, with what owned it
    why = difference(body, existing, owner=owner, same_token=same_token)
    if why:
        hint = "if nobody needs it, delete it; or give the run another name"
        raise ForeignObject(f"there is a {name} already that is not of this run: {why}", hint=hint)
    return existing


def difference(wanted: Object, existing: Mapping[str, Any], *, owner: str, same_token: bool = True) -> str:
    """Why an object is not the one that was wanted; empty where it is. Pure."""
    if "ownerReferences" not in wanted["metadata"]:
        return ""  # a claim that outlives every run: whoever made it
    owners = existing["metadata"].get("ownerReferences") or ()
    if owner not in [owner_body.get("uid") for owner_body in owners]:
        return "another owns it"
    if wanted["kind"] == "Secret":
        return _secret_difference(wanted.get("data") or {}, existing.get("data") or {}, same_token)
    if wanted["kind"] in WORKLOADS:
        return "" if retry_template.pins_of(wanted) == retry_template.pins_of(existing) else "it has another pin"
    return "" if _covers(wanted.get("spec"), existing.get("spec")) else "it says something else"


def _secret_difference(wanted: Mapping[str, str], existing: Mapping[str, str], same_token: bool) -> str:
    if "gang" not in wanted:
        return "" if dict(wanted) == dict(existing) else "it holds something else"
    if same_token and wanted.get("token") != existing.get("token"):
        return "it holds another token"
    try:
        pair = [gang_file.decode(base64.b64decode(data.get("gang") or "")) for data in (wanted, existing)]
    except (EngineError, ValueError):
        return "it holds no gang file"
    # What is left of the job's time depends on the moment.
    ours, theirs = ({**gang, "timeout_s": None} for gang in pair)
    return "" if ours == theirs else "it holds another gang file"


def _covers(wanted: Any, existing: Any) -> bool:
    """Whether everything that is wanted is there; the server fills in more."""
    if isinstance(wanted, Mapping):
        return isinstance(existing, Mapping) and all(_covers(value, existing.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        is_alike = isinstance(existing, list) and len(existing) == len(wanted)
        return is_alike and all(_covers(item, other) for item, other in zip(wanted, existing))
    return bool(wanted == existing)


def make_first(client: Client, record: Record, record_hash: str, objects: Sequence[Object], owner: Owner) -> None:
    """The last objects of a submission, with the submitter's own rights: the first attempt's Secret, the templates
    that vouch for it, and its workloads."""
    uid = owner["uid"]
    (secret,) = (each for each in objects if each["kind"] == "Secret")
    held = create_object(client, secret, owner=uid, same_token=False)
    templates = templates_of(record, record_hash, held, owner)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        list(pool.map(lambda each: create_object(client, each, owner=uid), templates))
    for each in objects:
        if each["kind"] in WORKLOADS:
            create_object(client, each, owner=uid)


def templates_of(record: Record, record_hash: str, secret: Mapping[str, Any], owner: Owner | None) -> list[Object]:
    if not retry_template.is_needed(record):
        return []
    return retry_templates(record, retry_template.pin_of(record_hash, secret), owner=owner)


def make_attempt(client: Client, snapshot: RunSnapshot, attempt: int, start: AttemptStart, owner: Owner) -> None:
    """The objects of a later attempt, of what the submitter made. Raises CannotRetry and Foreign."""
    record = snapshot.record
    if attempt > record.job.retries.last_attempt:
        raise CannotRetry(f"attempt {attempt + 1} is one more than the job's retries allow")
    first = _first_secret(client, snapshot)
    templates = _vouching(client, snapshot, first)
    gang = gang_file.decode(base64.b64decode(first["data"]["gang"]))
    token = retry_template.token_of(first, attempt)
    own = msgspec.structs.replace(start, token=token, code=gang_file.code_of(gang))
    objects = [_vouched(client, record, each) for each in attempt_objects(record, attempt, own, owner=owner)]
    rendered = [each for each in objects if each["kind"] in WORKLOADS]
    made = retry_template.copies(templates, record, attempt, rendered)
    for each in [*(each for each in objects if each["kind"] not in WORKLOADS), *made]:
        create_object(client, each, owner=snapshot.uid)


def start_of(record: Record, state: State, *, code: CodeManifest | None, now: float) -> AttemptStart:
    timeout_s = record.job.timeout_s
    if timeout_s is not None and state.started is not None:
        # `started` is written by whoever may write the record: no attempt gets more than the whole time.
        timeout_s = min(timeout_s, max(LEAST_TIMEOUT_S, state.started + timeout_s - now))
    is_held = record.gated_by != "none"
    return AttemptStart(token=secrets.token_hex(16), suspended=is_held, timeout_s=timeout_s, code=code)


def _first_secret(client: Client, snapshot: RunSnapshot) -> Object:
    name = names.attempt_name(snapshot.record.name, 0)
    secret = client.find(SECRET, name)
    if secret is None or "gang" not in (secret.get("data") or {}):
        raise CannotRetry(f"the Secret {name} of its first attempt is gone")
    return secret


def _vouching(client: Client, snapshot: RunSnapshot, first: Object) -> list[Object]:
    """The templates in the order of the workloads, if the submitter made them for just this record and Secret."""
    record = snapshot.record
    pin = retry_template.pin_of(snapshot.record_hash, first)
    there = {each["metadata"]["name"]: each for each in find_templates(client, record, snapshot.uid)}
    wanted = retry_template.template_names(record)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise CannotRetry(f"there is no retry template {missing[0]}, made by whoever submitted it")
    if any(retry_template.pins_of(there[name]) != {pin} for name in wanted):
        raise CannotRetry("its record or its first Secret is not the one that was submitted")
    return [there[name] for name in wanted]


def find_templates(client: Client, record: Record, uid: str) -> list[Object]:
    """All templates of the run that its record owns."""
    kind = JOBSET if record.workload == "jobset" else JOB
    selector = names.selector([(names.KIND, "template"), (names.TEMPLATE_OF, record.name)])
    try:
        bodies = client.list(kind, labels=selector).items
    except ObjectNotFound:
        return []
    version = {"apiVersion": kind.api_version, "kind": kind.kind}  # items of a list do not say it
    return [{**version, **each} for each in bodies if is_owned(each, uid)]


def vouched_pods(client: Client, record: Record, uid: str) -> list[Object]:
    """Pod specs of the run's workloads, as the server holds them: what somebody who may create Jobs has made."""
    templates = find_templates(client, record, uid)
    if not templates:
        kind = JOBSET if record.workload == "jobset" else JOB
        made = client.list(kind, labels=names.selector([(names.RUN, record.name)])).items
        templates = [{"kind": kind.kind, **each} for each in made if is_owned(each, uid)]
    return [pod for body in templates for pod in retry_template.pod_specs(body)]


def is_vouched(pod: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pod has no image, volume, account or pull Secret that one of these has not. Pure."""
    return any(_has_all(pod, pod_spec) for pod_spec in pods)


def _has_all(pod: Mapping[str, Any], pod_spec: Mapping[str, Any]) -> bool:
    images = {container["image"] for container in pod_spec.get("containers") or ()}
    sources = [_source(volume) for volume in pod_spec.get("volumes") or ()]
    return (
        all(container["image"] in images for container in pod["containers"])
        and all(any(_covers(_source(volume), other) for other in sources) for volume in pod.get("volumes") or ())
        and (pod.get("serviceAccountName") or "default") == (pod_spec.get("serviceAccountName") or "default")
        and all(secret in (pod_spec.get("imagePullSecrets") or ()) for secret in pod.get("imagePullSecrets") or ())
    )


def _source(volume: Mapping[str, Any]) -> Object:
    return {key: value for key, value in volume.items() if key != "name"}


def is_owned(body: Mapping[str, Any], uid: str) -> bool:
    """Whether the object with this uid owns the body."""
    return uid in [owner.get("uid") for owner in body["metadata"].get("ownerReferences") or ()]


def _vouched(client: Client, record: Record, body: Object) -> Object:
    """A claim template (DRA) is a copy of the first attempt's."""
    if body["kind"] != CLAIM_TEMPLATE.kind:
        return body
    role = next(role for role in record.job.roles if role.name == body["metadata"]["labels"][names.ROLE])
    name = pod_template.claim_template_name(record, role, retry_template.FIRST)
    first = client.find(CLAIM_TEMPLATE, name)
    if first is None or not is_owned(first, body["metadata"]["ownerReferences"][0]["uid"]):
        raise CannotRetry(f"the ResourceClaimTemplate {name} of its first attempt is gone")
    return {**body, "spec": first["spec"]}
