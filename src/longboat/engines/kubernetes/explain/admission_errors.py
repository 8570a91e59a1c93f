"""Translates admission rejections (quota, limits, Pod Security, webhooks, policies) into messages for users. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from longboat.engines.kubernetes.explain.containers import StartTrouble

_LONG = 400  # a webhook may answer with a page
_QUOTA = re.compile(r"exceeded quota: ([^,]+), requested: (.+?), used: (.+?), limited: (.+?)$")
_NEEDS = re.compile(r"failed quota: ([^:]+): must specify (.+?)$")
_SECURITY = re.compile(r'violates PodSecurity "([^"]+)": (.+)$', re.S)
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request(?: without explanation)?:? ?(.*)$', re.S)
_WEBHOOK_DOWN = re.compile(r'failed calling webhook "([^"]+)": (.+)$', re.S)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.+)$", re.S)
_LIMIT = re.compile(r"((?:maximum|minimum) [\w./-]+ usage per (?:Container|Pod) is [^,]+?)(?:, but |\.)", re.S)
_RATIO = re.compile(r"([\w./-]+ max limit to request ratio per (?:Container|Pod) is [^,]+)")
_CLASS = re.compile(r"no PriorityClass with name (\S+) was found")
_ACCOUNT = re.compile(r'error looking up service account \S+: serviceaccount "([^"]+)" not found')


def admission_trouble(message: str) -> StartTrouble | None:
    """What a refusal by an admission plugin, webhook or policy means; None for a message that is none."""
    text = message.strip()
    for ask in (_quota, _security, _webhook, _limits, _names):
        trouble = ask(text)
        if trouble is not None:
            return trouble
    return None


def _quota(text: str) -> StartTrouble | None:
    match = _QUOTA.search(text)
    if match:
        name, requested, used, limited = match.groups()
        words = f"quota {name} does not allow it: asked {requested}, used {used}, allowed {limited}"
        return StartTrouble(
            what=words, hint="wait until other pods of the namespace end, ask for less, or for more quota"
        )
    match = _NEEDS.search(text)
    if match:
        fields = _fields(match[2])
        words = f"quota {match[1]} lets only pods in that state {match[2]}"
        return StartTrouble(what=words, hint=f"state {fields} in the job file", is_final=True)
    return None


def _fields(named: str) -> str:
    names = {"cpu": "`cpus`", "memory": "`memory`", "ephemeral-storage": "`disk`"}
    kinds = {re.sub(r"^(requests|limits)\.", "", part.split(" for:")[0].strip()) for part in re.split("[,;]", named)}
    return ", ".join(sorted(names.get(kind, kind) for kind in kinds))


def _security(text: str) -> StartTrouble | None:
    match = _SECURITY.search(text)
    if not match:
        return None
    level = match[1].partition(":")[0]
    words = f"the namespace's Pod Security level {level} does not allow: {_cut(match[2])}"
    hint = "drop what needs it (host folders, root), or use another namespace"
    return StartTrouble(what=words, hint=hint, is_final=True)


def _webhook(text: str) -> StartTrouble | None:
    match = _WEBHOOK.search(text)
    if match:
        why = _cut(match[2]) or "it gives no reason"
        return StartTrouble(
            what=f"admission webhook {match[1]} refuses it: {why}", hint="ask who runs it", is_final=True
        )
    match = _WEBHOOK_DOWN.search(text)
    if match:
        words = f"admission webhook {match[1]} does not answer: {_cut(match[2])}"
        return StartTrouble(what=words, hint="nothing is admitted until it is fixed; ask who runs it")
    match = _POLICY.search(text)
    if match:
        return StartTrouble(
            what=f"admission policy {match[1]} refuses it: {_cut(match[2])}", hint="see the policy", is_final=True
        )
    return None


def _limits(text: str) -> StartTrouble | None:
    limits = _LIMIT.findall(text) or _RATIO.findall(text)
    if not limits:
        return None
    hint = "ask for what the namespace's LimitRange allows: `kubectl describe limitrange`"
    return StartTrouble(
        what="a LimitRange of the namespace does not allow it: " + "; ".join(limits), hint=hint, is_final=True
    )


def _names(text: str) -> StartTrouble | None:
    match = _CLASS.search(text)
    if match:
        return StartTrouble(
            what=f"there is no priority class {match[1]}", hint="`kubectl get priorityclasses`", is_final=True
        )
    match = _ACCOUNT.search(text)
    if match:
        return StartTrouble(what=f"there is no service account {match[1]} in the namespace", hint="create it")
    return None


def creation_troubles(events: Iterable[Mapping[str, Any]]) -> list[StartTrouble]:
    """Why Jobs (or JobSets) of a run could not make their pods: their FailedCreate events, newest last."""
    troubles: dict[str, StartTrouble] = {}
    for event in events:
        message = str(event.get("message") or "")
        if event.get("reason") not in ("FailedCreate", "FailedCreation", "JobCreationFailed", "PodCreationFailed"):
            continue
        trouble = admission_trouble(message) or StartTrouble(what=f"its pods cannot be made: {_cut(message)}")
        troubles[trouble.what] = trouble
    return list(troubles.values())


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONG else text[:_LONG].rpartition(" ")[0] + " ..."
