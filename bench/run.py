"""`make bench`: measures everything in one go, prints a table, writes bench/results.json.

python bench/run.py [PART...]   measure all parts, or only these (the other results are kept)
python bench/run.py --docs      write the tables of results.json and gpu.json into docs/performance.md, measure nothing

Each part is a module beside this one with `measure() -> dict[str, float]`. Nothing here judges a figure.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gputables
from tables import of_part

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
GPU = HERE / "gpu.json"
DOCS = HERE.parent / "docs" / "performance.md"
BEGIN, END = "<!-- results: begin, written by bench/run.py --docs -->", "<!-- results: end -->"

PARTS = {
    "peers": "Start-up and small jobs, against peers (seconds)",
    "startup": "Start-up of the command line",
    "syncing": "What it costs that runs survive a power loss",
    "queued": "Queued and idle runs",
    "bundles": "Bundles",
    "tee": "Log throughput",
    "serving": "A service's proxy, in front of a server that takes 10 ms",
    "kubernetes": "The Kubernetes engine",
    "shapes": "One training in pods: many processes in one, or many pods of one",
    "restarts": "From a failure to the first step after it, four nodes (seconds)",
    "workbench": "A notebook in a pod, opened again (seconds)",
    "listing": "10,000 pods listed",
    "metrics": "Metrics of runs, and `top`",
    "listed_runs": "`ps` of 1,000 runs of which 100 wait",
    "ui": "The dashboard with 10,000 runs",
    "places": "`run --on` over five clusters that answer after 0 to 200 ms",
    "orders": "From a gang that was submitted to the order of its machines (simulated nodes)",
    "services": "Autoscaler and controller while 20 runs pass (simulated nodes)",
    "hosts": "Machines over SSH (four containers with sshd on this machine's cores)",
    "fitting": "Fitting gangs to nodes (CPU seconds)",
    "autoscaler": "One decision of the autoscaler (CPU seconds)",
}


def machine() -> dict[str, str]:
    model = "unknown"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or model
    return {
        "cores": str(os.cpu_count()),
        "processor": model,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def tables(results: dict[str, Any]) -> str:
    """All results as Markdown."""
    about = results["machine"]
    lines = [
        f"Measured {results['measured']} on {about['cores']} cores ({about['processor']}), {about['system']}, "
        f"Python {about['python']}. Load average before the start: {about['load']}, which should be near 0."
    ]
    for part, title in PARTS.items():
        values = results["parts"].get(part)
        if values:
            lines += ["", f"### {title}", "", *of_part(part, values), *alone(results.get("alone", {}).get(part))]
    if GPU.exists():
        lines += ["", *gputables.section(json.loads(GPU.read_text()))]
    return "\n".join(lines) + "\n"


def alone(about: dict[str, str] | None) -> list[str]:
    """When a part was measured by itself, after the others: on which day, under which load."""
    if not about:
        return []
    where = f" on {about['cores']} cores" if "cores" in about else ""
    return ["", f"Measured by itself {about['measured']}{where}, at a load average of {about['load']}."]


def with_tables(page: str, results: dict[str, Any]) -> str:
    """The page with the part between its two markers replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{DOCS} lacks its two markers")
    return f"{head}{BEGIN}\n{tables(results)}{END}{tail}"


def measure(chosen: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {"parts": {}}
    about = machine()  # before our own work adds to the load
    if chosen and RESULTS.exists():
        results = json.loads(RESULTS.read_text())
    for part in chosen or PARTS:
        if not (HERE / f"{part}.py").exists():
            raise SystemExit(f"no such part: {part}; there are: {', '.join(PARTS)}")
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        results["parts"][part] = dict(importlib.import_module(part).measure())
    today = time.strftime("%Y-%m-%d", time.gmtime())
    if chosen and "machine" in results:
        for part in chosen:
            results.setdefault("alone", {})[part] = {key: about[key] for key in ("cores", "load")} | {"measured": today}
        return results
    results["machine"] = about
    results["measured"] = today
    return results


def main(arguments: list[str]) -> None:
    if arguments == ["--docs"]:
        DOCS.write_text(with_tables(DOCS.read_text(), json.loads(RESULTS.read_text())))
        return
    results = measure(arguments)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(tables(results))


if __name__ == "__main__":
    main(sys.argv[1:])
