from __future__ import annotations

from pathlib import Path

import pytest

from longboat.bundles.source.secret_files import MAX_SCANNED_BYTES, found_in, named_like_one


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "sub/.env",
        ".env.local",
        ".env.production",
        "server.pem",
        "SERVER.PEM",
        "id_rsa",
        "id_rsa_work",
        "k/id_ed25519",
        "tls.key",
        ".netrc",
        "credentials.json",
        "kubeconfig",
        "my.kubeconfig",
        ".aws/credentials",
        "home/.kube/config",
        ".git-credentials",
        "client_secret_123.json",
        "cert.p12",
    ],
)
def test_names_of_secrets(path: str) -> None:
    assert named_like_one(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        ".env.sample",
        ".env.template",
        "id_rsa.pub",
        "env.py",
        "environment.yml",
        "keys.py",
        "monkey",
        "credentials.py",
        "tokenizer.json",
        "config",
        "aws/credentials.md",
        "pem.py",
        ".npmrc",
    ],
)
def test_names_that_are_fine(path: str) -> None:
    assert not named_like_one(path)


# Put together here, so that no scanner takes this file for a leak.
SECRETS = {
    "a private key": [
        "-----BEGIN " + kind + "PRIVATE KEY-----" for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
    ],
    "an AWS access key": ["AKIA" + "Z7" * 8, "key=ASIA" + "Q" * 16 + "\n"],
    "a GitHub token": ["ghp_" + "x1" * 18, "gho_" + "y" * 36, "github_pat_" + "a" * 60],
    "a GitLab token": ["glpat-" + "a" * 20],
    "a Hugging Face token": ["hf_" + "aB" * 17],
    "an API key": ["sk-" + "a1" * 24, "sk-proj-" + "a_-1" * 6, "'sk-ant-api03-" + "x" * 30],
    "a Slack token": ["xoxb-" + "1" * 12 + "-abc", "xoxp-" + "1" * 12],
    "a Google API key": ["AIza" + "b" * 35],
}


@pytest.mark.parametrize(("what", "text"), [(what, text) for what, texts in SECRETS.items() for text in texts])
def test_contents_that_are_secrets(what: str, text: str) -> None:
    assert found_in("a.txt", f"import os\nx = '{text}'\n".encode()) == what


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AKIAIOSFODNN7EXAMPLE",
        "task-" + "a" * 40,
        "sk-toggleable__content-arrow",
        "sk-estimator-doc-link",
        "hf_model",
        "ghp_short",
        "xox",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        "the PRIVATE KEY",
        "AKIA" + "a" * 16,
        "hf_hub_download",
        "disk-" + "1" * 40,
    ],
)
def test_contents_that_are_fine(text: str) -> None:
    assert found_in("a.txt", text.encode()) == ""


def test_only_small_text_is_looked_into() -> None:
    token = b"hf_" + b"aB" * 17
    assert found_in("a", token + b"\0") == ""
    assert found_in("a", token + b" " * MAX_SCANNED_BYTES) == ""


@pytest.mark.parametrize(
    ("path", "text", "is_secret"),
    [
        (".npmrc", "//registry.example.org/:_authToken=abc\n", True),
        (".npmrc", "registry=https://registry.example.org\n", False),
        ("sub/.npmrc", "_password = abc\n", True),
        (".pypirc", "[pypi]\nusername = x\npassword = y\n", True),
        (".pypirc", "[pypi]\nusername = x\n", False),
        ("other", "password = y\n", False),
    ],
)
def test_settings_of_package_tools(path: str, text: str, is_secret: bool) -> None:
    assert bool(found_in(path, text.encode())) == is_secret


def test_runs_in_a_checkout_of_this_repository_name_none_of_its_files() -> None:
    """The first command that the README shows printed two notes. What they were about is left out without a word."""
    root = Path(__file__).parents[3]
    ignored = (root / ".longboatignore").read_text().splitlines()
    paths = [
        path for top in ("src", "tests", "docs", "examples", "bench", "deploy") for path in (root / top).rglob("*")
    ]
    read = {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}
    named = {path for path, data in read.items() if named_like_one(path) or found_in(path, data)}
    assert {path for path in named if "__pycache__" not in path} == {line[1:] for line in ignored if line[:1] == "/"}
