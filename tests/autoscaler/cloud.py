"""A cloud in a folder, as four commands, as a user of the `exec` provider writes them: list, grow, shrink, describe.

Machines and faults are JSON files in the folder named by CLOUD.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["CLOUD"])


def load(name: str) -> Any:
    path = FOLDER / name
    return json.loads(path.read_text()) if path.exists() else []


def store(name: str, value: Any) -> None:
    (FOLDER / f"{name}.new").write_text(json.dumps(value))
    (FOLDER / f"{name}.new").rename(FOLDER / name)


def list_machines(asked: dict[str, Any]) -> dict[str, Any]:
    names = {pool["name"] for pool in asked["pools"]}
    return {
        "machines": [one for one in load("machines") if one["pool"] in names],
        "refusals": [one for one in load("refusals") if one["pool"] in names],
    }


def grow(asked: dict[str, Any]) -> dict[str, Any]:
    machines, pool, zone = load("machines"), asked["pool"]["name"], asked["zone"]
    mine = [one for one in machines if one["token"] == asked["token"]]
    if not mine and asked["token"] not in load("cancelled"):
        for fault in load("faults"):
            if fault["pool"] == pool and fault.get("zone") in (None, zone):
                return {"error": {"kind": fault["kind"], "message": f"{fault['kind']} in {zone}"}}
        for _ in range(asked["count"]):
            one = {"id": f"rack-{uuid.uuid4().hex[:8]}", "pool": pool, "zone": zone, "token": asked["token"]}
            mine.append({**one, "state": "pending", "created": os.stat(FOLDER).st_ctime})
        store("machines", [*machines, *mine])
    return {"machines": mine}


def shrink(asked: dict[str, Any]) -> dict[str, Any]:
    store("machines", [one for one in load("machines") if one["id"] not in asked["machines"]])
    store("cancelled", [*load("cancelled"), *asked["tokens"]])
    return {}


def describe(asked: dict[str, Any]) -> dict[str, Any]:
    return {"zones": asked["pool"]["zones"], "spot": asked["pool"]["spot"], "max": 10}


if __name__ == "__main__":
    work = {"list": list_machines, "grow": grow, "shrink": shrink, "describe": describe}[sys.argv[1]]
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(json.dumps(work(json.load(sys.stdin))))
