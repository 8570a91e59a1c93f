"""An engine in a namespace of its own, without storage, for tests on the real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.specs.read import read_job
from testbed.clusters import Cluster

IMAGE = "longboat.test/python:latest"


class Bench:
    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        root: Path,
        kubeconfig: Path | None = None,
        *,
        queue: str | None = None,
    ) -> None:
        home = root / "home"
        home.mkdir(parents=True)
        settings = {"image": IMAGE, **({"queue": queue} if queue else {})}
        (home / "config.yaml").write_text(json.dumps({"kubernetes": settings}))
        chosen = str(kubeconfig or cluster.kubeconfig)
        self.environment = {"LONGBOAT_HOME": str(home), "KUBECONFIG": chosen, "PATH": "/usr/bin:/bin"}
        self.root = root
        self.namespace = namespace
        self.notices: list[str] = []
        self.engine = self.open()

    def open(self) -> KubernetesEngine:
        return KubernetesEngine(namespace=self.namespace, environment=self.environment, on_notice=self.notices.append)

    def submission(self, code: str = "", run_id: str | None = None, **fields: Any) -> Submission:
        folder = self.root / "code"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(code)
        given = {"name": "job", "run": ["python", "train.py"], "grace": "5s", **fields}
        loaded = read_job([], fields=given, environment=self.environment, cwd=folder)
        return Submission(job=loaded.job, base=loaded.base, run_id=run_id, environment=self.environment)

    def close(self) -> None:
        for run in self.engine.list():
            if not run.is_final:
                self.engine.stop(run.name, grace_s=0)
        self.engine.close()
