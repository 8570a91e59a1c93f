"""Checks of the kubeconfig, of who you are, and of clocks. Pure."""

from __future__ import annotations

from longboat.core.times import show_age
from longboat.doctor.facts import API, CLIENT, CLUSTER, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning
from longboat.doctor.values import Validity
from longboat.engines.kubernetes.submit.facts.permissions import format_permissions, grant
from longboat.engines.kubernetes.submit.preflight import needed_denials

SOON_S = 14 * 86400.0
"""Two weeks: time enough to ask an administrator for a new certificate."""
TOKEN_SOON_S = 3600.0
"""Tokens often last hours by design; one that ends within the hour ends during the next run."""
SKEW_S, MOST_SKEW_S = 5.0, 60.0
"""From the first on, ages in tables are wrong; from the second on, tokens are refused as not valid yet or any more."""


def kubeconfig(seen: Seen) -> Judgement:
    facts = seen[CLIENT]
    where = ", ".join(path for path, _ in facts.files) or "the pod's service account"
    if facts.skips_verification:
        hint = "put the cluster's CA into the kubeconfig (certificate-authority-data) in place of the switch"
        return warning(f"context {facts.context}: the server's certificate is not verified", hint)
    return ok(f"context {facts.context} of {where}, namespace {facts.namespace}")


def kubeconfig_mode(seen: Seen) -> Judgement:
    facts = seen[CLIENT]
    if not facts.files:
        return skipped("no file of one can be seen")
    open_files = [path for path, mode in facts.files if mode & 0o007]
    if open_files:
        hint = f"chmod 600 {' '.join(open_files)}"
        return warning(f"others on this machine can read {', '.join(open_files)}", hint)
    shared = [path for path, mode in facts.files if mode & 0o070]
    if shared:
        hint = f"chmod 600 {' '.join(shared)}, unless its group shares it"
        return warning(f"its group can read {', '.join(shared)}", hint)
    return ok("only you can read it")


def credentials(seen: Seen) -> Judgement:
    facts = seen[CLIENT]
    if facts.plugin and facts.plugin_path is None:
        hint = "install it, or put its folder on PATH; your provider's tool brings it"
        return broken(f"the program that logs in, {facts.plugin}, is not on PATH", hint)
    if facts.certificate is not None:
        return _validity("your client certificate", facts.certificate, facts.now, SOON_S)
    if facts.token_ends is not None:
        return _ending("your token", facts.token_ends, facts.now, TOKEN_SOON_S)
    if facts.plugin:
        return ok(f"{facts.plugin_path} logs in")
    if facts.login == "certificate" or facts.is_token_unread:
        return skipped(f"your {facts.login} could not be read", "does the file that the kubeconfig names exist?")
    if facts.login == "none":
        return skipped("the kubeconfig has neither certificate, token nor program that logs in")
    return ok("a token without an end" if facts.login == "token" else f"login: {facts.login}")


def _validity(title: str, validity: Validity, now: float, soon_s: float) -> Judgement:
    if now < validity.begins:
        hint = "is the clock of this machine right?"
        return broken(f"{title} is valid only in {show_age(validity.begins - now)}", hint)
    return _ending(title, validity.ends, now, soon_s)


def _ending(title: str, ends: float, now: float, soon_s: float) -> Judgement:
    hint = "log in again, or ask for a new kubeconfig: `longboat cluster kubeconfig`, `longboat cluster user add`"
    if ends <= now:
        return broken(f"{title} ended {show_age(now - ends)} ago", hint)
    if ends - now < soon_s:
        return warning(f"{title} ends in {show_age(ends - now)}", hint)
    return ok(f"{title} is valid for {show_age(ends - now)}")


def clock(seen: Seen) -> Judgement:
    off_s = seen[API].skew_s
    side = "ahead of" if off_s < 0 else "behind"
    detail = f"this machine's clock is {abs(off_s):.0f} s {side} the API server's"
    hint = "synchronize it: timedatectl set-ntp true, or chrony; on the other side, the control plane's"
    if abs(off_s) > MOST_SKEW_S:
        return broken(detail, hint)
    return warning(detail, hint) if abs(off_s) > SKEW_S else ok(f"within {SKEW_S:.0f} s of the API server's")


def permissions(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    needed = needed_denials(facts)
    rest = [permission for permission in facts.denied if permission not in needed]
    if needed:
        hint = f"ask for {grant(needed, namespace=facts.namespace)}"
        return broken("may not " + format_permissions(needed), hint)
    if rest:
        hint = f"ask for {grant(rest, namespace=facts.namespace)}"
        return warning("all that runs need; may not " + format_permissions(rest), hint)
    if not facts.knows_rights:
        return skipped("no right to ask for rights: the API server refuses SelfSubjectAccessReviews")
    return ok("all that runs need")


def service_account(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    if facts.has_service_account is None:
        return skipped("no right to get serviceaccounts")
    if not facts.has_service_account:
        hint = f"kubectl -n {facts.namespace} create serviceaccount {facts.service_account}"
        return broken(f"the pods' service account {facts.service_account} is not there", hint)
    if facts.lost_secrets:
        hint = f"kubectl -n {facts.namespace} create secret docker-registry {facts.lost_secrets[0]} ..."
        return broken(f"secrets for pulling images are not there: {', '.join(facts.lost_secrets)}", hint)
    secrets = ", ".join(facts.pull_secrets or ()) or "none"
    return ok(f"{facts.service_account}; secrets for pulling images: {secrets}")


CHECKS = (
    Check("kubeconfig", "client", "the context is there, and the server's certificate is verified", kubeconfig),
    Check(
        "kubeconfig mode",
        "client",
        "nobody else on this machine can read the kubeconfig",
        kubeconfig_mode,
        fix="closes a file of yours to all but its group (chmod o=)",
    ),
    Check("credentials", "client", "certificate or token are valid, the login program is there", credentials),
    Check("clock", "client", "this machine's clock agrees with the API server's", clock),
    Check("permissions", "client", "you have all the rights that runs need in the namespace", permissions),
    Check("service account", "client", "the pods' account and its pull secrets are there", service_account),
)
