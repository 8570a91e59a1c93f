"""Who is impersonated: headers of requests, and where the name comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.kubeapi import kubeconfig
from longboat.kubeapi.connection.impersonation import with_user
from longboat.kubeapi.errors import KubeconfigError


def test_each_group_has_a_header_of_its_own() -> None:
    sent = with_user({"Host": "x"}, {"token": "t", "as": "alice", "as-groups": ["ml", "ops"]})
    assert list(sent.items()) == [
        ("Host", "x"), ("Impersonate-User", "alice"), ("Impersonate-Group", "ml"), ("Impersonate-Group", "ops"),
    ]  # fmt: skip
    plain = {"Host": "x"}
    assert with_user(plain, {"token": "t", "as": "", "as-groups": ["ml"]}) is plain


@pytest.mark.parametrize("name", ["a\r\nX: y", " a", "\xe4", "a" * 300])
def test_a_name_that_no_header_carries_is_refused(name: str) -> None:
    with pytest.raises(KubeconfigError, match="name of a user or group"):
        with_user({}, {"as": name})
    with pytest.raises(KubeconfigError, match="name of a user or group"):
        with_user({}, {"as": "alice", "as-groups": [name]})


def test_the_environment_names_another_user(tmp_path: Path) -> None:
    entry = {"clusters": [{"name": "c", "cluster": {"server": "https://x"}}]}
    entry |= {"users": [{"name": "u", "user": {"token": "t", "as": "bob"}}]}
    entry |= {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    (tmp_path / "config").write_text(json.dumps(entry))
    variables = {"KUBECONFIG": str(tmp_path / "config")}
    assert kubeconfig.find(None, None, variables).user["as"] == "bob"
    variables |= {"LONGBOAT_AS": "alice", "LONGBOAT_AS_GROUPS": "ml, ops,"}
    user = kubeconfig.find(None, None, variables).user
    assert (user["as"], user["as-groups"], user["token"]) == ("alice", ["ml", "ops"], "t")
