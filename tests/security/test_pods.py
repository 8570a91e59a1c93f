"""What a rank has in its pod: no token of a service account, and no right at the API server without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.core.runs import LogQuery
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.pods

TRIES = """
import json, os, ssl, urllib.error, urllib.request
tokens = [os.path.join(folder, name) for folder, _, names in os.walk("/var/run/secrets") for name in names]
host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
answers = []
for path in ("/api/v1/secrets", "/api/v1/namespaces/default/pods", "/apis/batch/v1/jobs"):
    try:
        url, unchecked = f"https://{host}:{port}{path}", ssl._create_unverified_context()
        answer = urllib.request.urlopen(url, context=unchecked, timeout=20)
        answers.append(answer.status)
    except urllib.error.HTTPError as error:
        answers.append(error.code)
    except OSError:
        answers.append("not reached")
shown = [name for name, value in os.environ.items() if "TOKEN" in name.upper()]
print(json.dumps({"tokens": tokens, "answers": answers, "named": shown, "host": host}))
"""


@pytest.fixture
def bench(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(cluster, namespace, tmp_path)
    yield made
    made.close()


def test_a_rank_has_no_token_and_no_rights(bench: Bench) -> None:
    run = bench.engine.submit(bench.submission(TRIES, name="tries", nodes=2, retries=1)).name
    assert bench.engine.wait(run, timeout_s=240).phase == "succeeded"
    said = [json.loads(line.data) for line in bench.engine.logs(run, LogQuery())]
    assert len(said) == 2
    for rank in said:
        assert rank["tokens"] == [] and rank["named"] == [], rank
        assert set(rank["answers"]) <= {401, 403, "not reached"}, rank
