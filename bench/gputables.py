"""What bench/gpu.py measured (gpu.json) as a section of docs/performance.md. Pure."""

from __future__ import annotations

import statistics
from typing import Any

from tables import Row, number, table

PLACES = ("bare", "embedded", "kubernetes")
PHASES = {
    "started": "until the script's first line runs, s",
    "imported": "until torch is imported, s",
    "ready": "until the model is on the GPU, s",
    "first step": "until the first step is done, s",
}


def section(results: dict[str, Any]) -> list[str]:
    training = results["training"]
    about = f"Measured by `bench/gpu.py` on another machine: {results['gpu']}, {results['cores']} cores, torch"
    rounds = len(training["phases"]["bare"])
    return [
        "### The same training bare, embedded and on Kubernetes, on a GPU",
        "",
        f"{about} {training['machine']['torch']}. A small transformer in bf16 with a fixed seed; medians of",
        f"{rounds} rounds in turns. Kubernetes is the cluster of testbed/ on the same machine.",
        "",
        *table(training_rows(training)),
        "",
        *table(start_rows(results["starts"])),
        "",
        *table(queue_rows(results["queueing"])),
        "",
        *table(handover_rows(results["queueing"]["kubernetes"])),
        "",
        *table(seeing_rows(results["seeing"], results["isolation"])),
        "",
        "Pods of an image of its own, without privileges, and NVIDIA's device plugin over the machine's driver:",
        "",
        *table(pod_rows(results["pods"])),
        "",
        *table(isolation_rows(results["isolation"])),
        "",
        *table(failing_rows(results["failing"])),
    ]


def training_rows(training: dict[str, Any]) -> list[Row]:
    steps, ratios = training["step_median_s"], training["step_ratio"]
    rows: list[Row] = [["training", *PLACES]]
    rows.append(["median step, ms", *(f"{steps[place] * 1000:.2f}" for place in PLACES)])
    rows.append(["median step, against bare", *(f"{ratios[place]:.4f}" for place in PLACES)])
    for phase, words in PHASES.items():
        medians = [statistics.median(row[phase] for row in training["phases"][place]) for place in PLACES]
        rows.append([words, *map(number, medians)])
    return rows


def start_rows(starts: dict[str, float]) -> list[Row]:
    """Nothing else on the machine; medians."""
    rows: list[Row] = [["a small script that has the GPU", "bare", "embedded", "later by"]]
    bare, embedded = starts["bare"], starts["embedded"]
    rows.append(["until its first line runs, s", number(bare), number(embedded), number(embedded - bare)])
    return rows


def handover_rows(queueing: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [["a GPU from one run to the next on Kubernetes", "after the first script's end, s"]]
    rows += [[step, number(after)] for step, after in queueing["steps"].items()]
    return [*rows, ["the second script's first line runs", number(queueing["second_after_first_s"])]]


def queue_rows(queueing: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [["two runs that want the one GPU", "the second says", "it starts after the first's end, s"]]
    for place, seen in queueing.items():
        rows.append([place, seen["reason"], number(seen["second_after_first_s"])])
    return rows


def seeing_rows(seeing: dict[str, Any], isolation: dict[str, Any]) -> list[Row]:
    """The embedded engine as root and as a user, and with isolation off."""
    shown = {f"embedded as {who}": isolation[who] for who in ("root", "user")}
    places = {place: {asked: cases[asked] for asked in ("one GPU", "no GPU")} for place, cases in shown.items()}
    places["embedded, isolation off"] = {"no GPU": isolation["user"]["off"]}
    places["kubernetes"] = seeing["kubernetes"]
    rows: list[Row] = [["what a run sees", "GPUs", "after it widened CUDA_VISIBLE_DEVICES", "device files"]]
    for place, cases in places.items():
        for asked, seen in cases.items():
            files = ", ".join(seen["devices"]) or "none"
            rows.append([f"{place}, asked for {asked}", str(seen["given"]), str(seen["widened"]), files])
    return rows


def pod_rows(pods: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [["a pod that asks for", "GPUs", "variables widened", "device files", "made by mknod"]]
    for asked, seen in pods.items():
        if isinstance(seen, dict):
            opened = [number for number, text in seen["made by itself"].items() if text == "opened"]
            reached = f"opens {', '.join(opened)}" if opened else "opens none"
            counts = [str(max(0, seen[name])) for name in ("given", "widened")]
            rows.append([asked, *counts, ", ".join(seen["devices"]) or "none", reached])
    return [*rows, ["one GPU, while another user's run has it", "-", "-", "-", "waits"]]


def isolation_rows(isolation: dict[str, Any]) -> list[Row]:
    starts = isolation["start of `true`, s"]
    rows: list[Row] = [["a run of `true` without GPUs", "GPU isolation off", "on"]]
    return [*rows, ["until the command has ended, s", number(starts["off"]), number(starts["auto"])]]


def failing_rows(failing: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [["post-mortem", "cause", "headline"]]
    for place, cases in failing.items():
        for case, seen in cases.items():
            rows.append([f"{place}, {case}", seen["cause"], shortened(seen["headline"])])
    return rows


def shortened(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else text[:limit].rpartition(" ")[0] + " ..."
