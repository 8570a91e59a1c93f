"""The JSON schema of the job file, made from the table that validates it. For editors; `read` has the last word."""

from __future__ import annotations

from typing import Any

from longboat.specs.fields.job_fields import JOB

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": "Longboat job",
        "description": "One training: what runs, on how many nodes, with what, and what happens when it fails.",
        **JOB.schema(),
        "$defs": {
            "substitution": {
                "description": "A variable of your environment: ${VAR} or ${VAR:-default}.",
                "type": "string",
                "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}",
            }
        },
    }
