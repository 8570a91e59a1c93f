"""Rules for single texts of a job file: names, paths, URLs, labels. Each check says what is wrong, or nothing. Pure."""

from __future__ import annotations

import posixpath
import re

from longboat.core.guards.lazy_pattern import lazy_pattern

MAX_NAME = 40  # as `engines.shared.home.NAME_LIMIT`: a run is called like its job
NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
NAME_EXPECTED = "a-z, 0-9 and -, beginning with a letter, not ending with -, at most 40 characters"
ROLE = r"[a-z][a-z0-9]{0,19}"
ROLE_EXPECTED = "a role's name: lower-case letters and digits, beginning with a letter, at most 20 characters"
ENV = r"[A-Za-z_][A-Za-z0-9_]{0,254}"
ENV_EXPECTED = "the name of a variable: letters, digits and _, not beginning with a digit"
IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}"
IMAGE_EXPECTED = "a container image such as python:3.12 or ghcr.io/me/train@sha256:..."
SUBDOMAIN = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
SUBDOMAIN_EXPECTED = "lower-case letters, digits, - and ."
TARGET = r"[^\x00-\x1f\x7f:~]{1,1023}"
TARGET_EXPECTED = "a path such as data (in the working folder) or /data"
NFS = r"[A-Za-z0-9][A-Za-z0-9.-]*:/[^\x00-\x1f\x7f]*"
LABEL_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
LABEL_KEY_EXPECTED = "a label such as team or example.org/team: letters, digits, -, _ and ., at most 63 characters"
URL = r"(https?|s3|gs|az|file)://[^\s\x00-\x1f\x7f]+"
STORE_URL = r"(s3|gs|az)://[^\s\x00-\x1f\x7f]+"
PLACE_EXPECTED = "a folder, or s3://BUCKET/NAME, gs://BUCKET/NAME or az://CONTAINER/NAME"
URL_EXPECTED = "a URL that begins with https, http, s3, gs, az or file, then ://"
SHA256 = r"[0-9a-fA-F]{64}"

_BUCKET = lazy_pattern(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,221}")
_LABEL_VALUE = lazy_pattern(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_SECRET_VALUE = lazy_pattern(r"(hf_|ghp_|gho_|github_pat_|glpat|sk_|xox[abp]|AKIA|ASIA|ya29|eyJ)[A-Za-z0-9_]{12,}\Z")
_SECRET_NAME = lazy_pattern(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|CREDENTIALS?)(_ID)?\Z", re.IGNORECASE)
_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64")


def suggest_name(text: str, *, fallback: str = "job") -> str:
    """The nearest valid name: `My Job_2` gives my-job-2, `123` job-123."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if name.replace("-", "").isdecimal():
        name = f"{fallback}-{name}"
    name = re.sub(r"^[^a-z]+", "", name)[:MAX_NAME].strip("-")
    return name or fallback


def label_value_fault(value: str) -> str | None:
    if _LABEL_VALUE.fullmatch(value):
        return None
    return "a label's value has at most 63 letters, digits, -, _ and ., and begins and ends with a letter or digit"


def inside_fault(path: str) -> str | None:
    """For glob patterns and folders that must stay inside the working copy."""
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", path):
        return "expected a path relative to the working folder"
    return "expected a path that stays inside the working folder, without .." if ".." in path.split("/") else None


def target_fault(path: str) -> str | None:
    """For places where volumes appear: no `..`, neither the whole working folder nor a folder of the system."""
    if ".." in path.split("/"):
        return "expected a path without .."
    clean = clean_target(path)
    if clean == ".":
        return "expected a path below the working folder"
    if clean == "/" or any(clean == folder or clean.startswith(folder + "/") for folder in _SYSTEM_FOLDERS):
        hint = " (the size of /dev/shm is the field shm)" if clean == "/dev/shm" else ""
        return f"{clean} belongs to the system, choose another place{hint}"
    return None


def clean_target(path: str) -> str:
    clean = posixpath.normpath(path)
    return "/" + clean.lstrip("/") if path.startswith("/") else clean


def is_below(place: str, folder: str) -> bool:
    """Whether a clean path is this folder or lies in it."""
    return place == folder or place.startswith(folder + "/")


def destination_fault(path: str) -> str | None:
    """For the folder of imported data; that an absolute one lies in a volume is checked where volumes are known."""
    if ".." in path.split("/"):
        return "expected a path without .."
    if path.startswith("~"):
        return "expected a path in the working folder or in a volume, not in a home"
    return "expected a path below the working folder" if clean_target(path) in (".", "/") else None


def url_fault(url: str) -> str | None:
    """The message never repeats the URL: it may hold a password."""
    authority = url.split("://", 1)[1].split("/", 1)[0]
    if "@" in authority and ":" in authority.rsplit("@", 1)[0]:
        return "found a password in the URL, which every copy of this file would show; use `secrets`"
    if not authority and not url.startswith("file:///"):
        return f"found a URL without a host, expected {URL_EXPECTED}"
    return None


def checkpoint_fault(place: str) -> str | None:
    """The same for checkpoints, which have a folder of their own."""
    is_workdir = clean_target(place) == "."
    return (
        "found the working folder itself, expected a folder such as ./checkpoints" if is_workdir else place_fault(place)
    )


def place_fault(place: str) -> str | None:
    """For places that are a folder or a name in an object store. The message never repeats a URL."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?", place)
    if scheme is None:
        return None
    if not scheme[2]:
        is_store = scheme[1].lower() in ("s3", "gs", "az")
        return f"found {scheme[1]}: without //, expected {PLACE_EXPECTED}" if is_store else None
    if scheme[1] == "file":
        return "found a file URL, expected the folder itself, such as /checkpoints"
    if scheme[1] not in ("s3", "gs", "az"):
        return f"found a URL with {scheme[1]}, expected {PLACE_EXPECTED}"
    bucket, _, key = place[scheme.end() :].partition("/")
    if "@" in bucket or ":" in bucket:
        return "found credentials in the URL, which every copy of this file would show; use `secrets`"
    if not _BUCKET.fullmatch(bucket):
        return f"found a URL without the name of a bucket, expected {PLACE_EXPECTED}"
    return _key_fault(key.rstrip("/"))


def _key_fault(key: str) -> str | None:
    if "?" in key or "#" in key:
        return "found ? or # in the name, expected %3F and %23 where the name has them"
    if any(char.isspace() for char in key):
        return "found a blank in the URL, expected %20"
    if key and any(part in ("", ".", "..") for part in key.split("/")):
        return "found //, . or .. in the name, expected the name of a folder"
    return None


def looks_like_secret_value(text: str) -> bool:
    return bool(_SECRET_VALUE.match(text))


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name))
