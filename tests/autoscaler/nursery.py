"""Autoscalers that die: a process that has imported everything and forks one for every line of JSON on its stdin.

`{"op": "start", "after": 3}` starts one that ends with 77 right after its third write; without `after` it lives until
`{"op": "kill"}`. `{"op": "poll"}` tells its exit code. Every answer is one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from longboat.autoscaler.loop import AutoscalerLoop
from longboat.autoscaler.model.config import AutoscalerConfig, LoopPace
from longboat.autoscaler.model.pools_file import read_pools
from longboat.autoscaler.providers.kwok import KwokProvider
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection.transport import ApiRequest, Transport

KILLED = 77


def live(namespace: str, pools: str, after: int | None) -> None:
    """A whole autoscaler; a write is a request that changes something at the API or at the (simulated) provider."""
    if after is not None:
        ask, lock, writes = Transport.request, threading.Lock(), [0]

        def request(self: Transport, wanted: ApiRequest) -> bytes:
            answer = ask(self, wanted)
            if wanted.method != "GET":
                with lock:
                    writes[0] += 1
                    if writes[0] == after:
                        os._exit(KILLED)
            return answer

        Transport.request = request  # type: ignore[method-assign]
    found, settings = read_pools(pools)
    client = Client.open(namespace=namespace)
    pace = LoopPace(interval_s=0.3, least_s=0.02, settle_s=0.0)
    config = AutoscalerConfig(pools=found, settings=settings, home=namespace, pace=pace)
    AutoscalerLoop(client, config, {"kwok": KwokProvider(client, namespace)}).run(threading.Event())


def main() -> None:
    namespace, pools = sys.argv[1:]
    child, code = 0, None
    for line in sys.stdin:
        wanted: dict[str, Any] = json.loads(line)
        if wanted["op"] == "start":
            code, child = None, os.fork()
            if child == 0:
                try:
                    live(namespace, pools, wanted.get("after"))
                finally:
                    os._exit(1)
        elif code is None:
            if wanted["op"] == "kill":
                os.kill(child, signal.SIGKILL)
            pid, status = os.waitpid(child, 0 if wanted["op"] == "kill" else os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps({"code": code}), flush=True)
    if child and code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
