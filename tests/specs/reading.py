"""Reads job files from text, for the tests of reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import JobError, Problem
from longboat.core.jobs import Job
from longboat.specs.read import LoadedJob, read_job


class Reader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *texts: str | bytes, environment: Mapping[str, str] | None = None, **more: Any) -> LoadedJob:
        files = []
        for index, text in enumerate(texts):
            file = self.folder / f"{index}.yaml"
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
            files.append(Path(file.name))
        return read_job(files, environment=environment or {}, cwd=self.folder, **more)

    def job(self, *texts: str, **more: Any) -> Job:
        return self(*texts, **more).job

    def problems(self, *texts: str | bytes, **more: Any) -> list[Problem]:
        with pytest.raises(JobError) as caught:
            self(*texts, **more)
        return caught.value.problems

    def says(self, *texts: str | bytes, **more: Any) -> str:
        return "\n".join(str(problem) for problem in self.problems(*texts, **more))
