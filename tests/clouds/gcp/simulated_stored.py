"""What a cluster leaves in a project of a simulated Google Cloud: disks, snapshots, Filestore, parts of balancers."""

from __future__ import annotations

import re
from typing import Any

from tests.clouds.gcp.simulated_google import PROJECT, REGION
from tests.clouds.simulated_rest import Body, SimulatedRefusal

BASE = f"/compute/v1/projects/{PROJECT}"
ZONE = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{REGION}-b"
PAGE = 2  # whoever reads the first page only misses most


class SimulatedStored:
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, dict[tuple[str, str], Body]] = {
            kind: {} for kind in ("disks", "snapshots", "addresses", "forwardingRules", "firewalls", "instances")
        }
        """Kind -> place and name -> body; `instances` are of Filestore."""
        self.has_filestore = True
        self.unreachable: list[str] = []  # places whose Filestore does not answer

    def keep(self, kind: str, name: str, place: str = "global", **more: Any) -> None:
        self.kept[kind][place, name] = {"name": name, **more}

    def cluster_disks(self) -> list[Body]:
        raise NotImplementedError

    def drop_disk(self, name: str) -> None:
        raise NotImplementedError

    def answer_stored(self, method: str, path: str, query: dict[str, str]) -> Body | None:
        """None: it is no request about these."""
        match = re.fullmatch(rf"{BASE}/aggregated/(\w+)", path)
        if match and match[1] in self.kept:
            found = [(place, body) for (place, _), body in self.kept[match[1]].items()]
            found += [(f"zones/{REGION}-b", body) for body in self.cluster_disks()] if match[1] == "disks" else []
            page, more = _page(found, query)
            places = {place: {match[1]: [body for at, body in page if at == place]} for place, _ in page}
            return {"items": {"regions/empty": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}, **places}, **more}
        if match := re.fullmatch(rf"{BASE}/global/(snapshots|firewalls)", path):
            page, more = _page([*self.kept[match[1]].values()], query)
            return {"items": page, **more}
        if path == f"/v1/projects/{PROJECT}/locations/-/instances":
            if not self.has_filestore:
                words = f"Cloud Filestore API has not been used in project {PROJECT} before or it is disabled."
                details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED"}]
                error = {"code": 403, "message": words, "status": "PERMISSION_DENIED", "details": details}
                raise SimulatedRefusal(403, error)
            page, more = _page([*self.kept["instances"].values()], query)
            silent = [f"projects/{PROJECT}/locations/{place}" for place in self.unreachable]
            return {"instances": page, **more, **({"unreachable": silent} if silent else {})}
        pattern = rf"(?:{BASE}|/v1/projects/{PROJECT})/((?:zones|regions|locations)/[^/]+|global)/(\w+)/([^/]+)"
        if (match := re.fullmatch(pattern, path)) and method == "DELETE" and match[2] in self.kept:
            if self.kept[match[2]].pop((match[1], match[3]), None) is None:
                self.drop_disk(match[3])
            return {"name": "operation-gone", "status": "RUNNING"}
        return None


def _page(found: list[Any], query: dict[str, str]) -> tuple[list[Any], Body]:
    start = int(query.get("pageToken", 0))
    more = {"nextPageToken": str(start + PAGE)} if start + PAGE < len(found) else {}
    return found[start : start + PAGE], more
