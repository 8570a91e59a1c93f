"""The top level of the job file: every field of a job, in the order of the documentation."""

from __future__ import annotations

from longboat.core.jobs import BATCHES, FRAMEWORKS, GROWS, MOST_AFTER
from longboat.specs.fields import rules
from longboat.specs.fields.commands import Script
from longboat.specs.fields.composites import AsWritten, Either, Field, ListOf, MapOf, Shape
from longboat.specs.fields.field_table import (
    ALIASES,
    CHECKPOINTS,
    DATA,
    GLOBS,
    RETRIES,
    ROLE,
    ROLE_FIELDS,
    SECRET,
    SecretMap,
    SecretName,
    Workdir,
)
from longboat.specs.fields.scalars import ChoiceOf, Text, WholeNumber, duration
from longboat.specs.fields.serve_fields import SERVE
from longboat.specs.fields.sweeps import PARAMS, SWEEP
from longboat.specs.fields.volumes import VOLUME, volumes_of

_ROLE_NAME = Text(expected=rules.ROLE_EXPECTED, pattern=rules.ROLE)
_RUN, *_PER_NODE = ROLE_FIELDS

JOB = Shape(
    fields=(
        Field(
            name="name",
            kind=Text(expected=rules.NAME_EXPECTED, pattern=rules.NAME, suggest=rules.suggest_name),
            doc="Name of the job; its runs are NAME, NAME-2, ...",
            default="the job file's folder, or the script",
            example="digits",
        ),
        _RUN,
        Field(
            name="setup",
            kind=Script(expected="a shell command"),
            doc="Shell command run once per node before the ranks start.",
            example="pip install -r requirements.txt",
            substituted=False,
        ),
        Field(
            name="framework",
            kind=ChoiceOf(options=FRAMEWORKS),
            doc="Which variables the ranks see.",
            default="guessed from the command and the script",
            example="torch",
        ),
        *_PER_NODE,
        Field(
            name="roles",
            kind=MapOf(item=ROLE, what="roles", key=rules.ROLE, key_expected=rules.ROLE_EXPECTED, null=True),
            doc="Named groups of nodes, such as chief, ps, worker, evaluator. Fields above are their defaults.",
            default="one role named worker",
            example="{ps: {nodes: 2}, worker: {nodes: 4, gpus: 1}}",
        ),
        Field(
            name="ends",
            kind=ListOf(item=_ROLE_NAME, what="names of roles", least=1),
            doc="Roles that decide success: when all their ranks have succeeded, the others are ended.",
            default="all but ps, evaluator and eval",
            example="[worker]",
        ),
        Field(
            name="workdir",
            kind=Workdir(expected="a folder, or none"),
            doc="Folder of the code, relative to the job file; none (or null): no code travels.",
            default=".",
            example="./src",
            null=True,
        ),
        Field(
            name="include",
            kind=GLOBS,
            doc="Files that travel although they are ignored.",
            default="[]",
            example='["data/*.json"]',
        ),
        Field(name="exclude", kind=GLOBS, doc="Files that do not travel.", default="[]", example='["*.ipynb"]'),
        Field(
            name="secrets",
            kind=Either(
                scalar=SecretMap(
                    item=SECRET, what="secrets", key=rules.ENV, key_expected=rules.ENV_EXPECTED, null=True
                ),
                listed=ListOf(item=SecretName(), what="names", single=False),
            ),
            doc="Secrets by name, read when the run starts. Values are refused.",
            default="[]",
            example="[HF_TOKEN]",
            substituted=False,
        ),
        Field(
            name="volumes",
            kind=MapOf(
                item=VOLUME,
                what="targets and what is mounted there",
                key=rules.TARGET,
                key_expected=rules.TARGET_EXPECTED,
                check_key=rules.target_fault,
                build=volumes_of,
            ),
            doc="What the ranks see at a path, in the working folder or absolute; text is a folder of the machine.",
            default="{}",
            example="{/data: {claim: datasets, read_only: true}}",
        ),
        Field(
            name="data",
            kind=ListOf(item=DATA, what="data to import", single=False),
            doc="Data fetched before the ranks start.",
            default="[]",
            example="[{url: https://example.org/data.tar.gz, to: data}]",
        ),
        Field(
            name="checkpoints",
            kind=CHECKPOINTS,
            doc="Where checkpoints are kept; text is `to`.",
            default="kept with the run",
            example="{to: ./checkpoints, keep: 3}",
        ),
        Field(name="artifacts", kind=GLOBS, doc="Files kept after the end.", default="[]", example='["out/**"]'),
        Field(
            name="retries",
            kind=RETRIES,
            doc="Starting a failed run again; a number is `count`.",
            default="0",
            example="{count: 2, on: [oom, lost]}",
        ),
        Field(
            name="grow",
            kind=ChoiceOf(options=GROWS),
            doc="When an elastic run takes more nodes: at its next checkpoint, never, or as soon as there is room.",
            default="checkpoint",
            example="now",
        ),
        Field(
            name="batch",
            kind=ChoiceOf(options=BATCHES),
            doc="What a trainer gives `longboat.batch_size`: the batch of a rank, or of all ranks together.",
            default="rank",
            example="global",
        ),
        Field(
            name="timeout",
            kind=duration(0.1, off=True),
            doc="The run is ended after this.",
            default="off",
            example="2h",
        ),
        Field(
            name="grace",
            kind=duration(0.0, 86400.0),
            doc="Between asking ranks to end and killing them.",
            default="30s",
            example="2m",
        ),
        Field(
            name="stall",
            kind=duration(0.1, off=True),
            doc="A rank without a step or an output line for this long is hung and the run is ended.",
            default="off (only reported)",
            example="15m",
        ),
        Field(
            name="queue",
            kind=Text(expected=f"the name of a queue: {rules.SUBDOMAIN_EXPECTED}", pattern=rules.SUBDOMAIN),
            doc="Queue of the engine.",
            example="research",
        ),
        Field(
            name="priority",
            kind=WholeNumber(low=-1_000_000, high=1_000_000),
            doc="Higher goes first.",
            default="0",
            example="10",
        ),
        Field(
            name="after",
            kind=ListOf(
                item=Text(expected=f"the name of a run: {rules.NAME_EXPECTED}", pattern=rules.NAME),
                what="names of runs",
                most=MOST_AFTER,
            ),
            doc="Runs that must have succeeded before this one starts.",
            default="[]",
            example="prepare",
        ),
        Field(
            name="labels",
            kind=MapOf(
                item=AsWritten(expected="a label's value", check=rules.label_value_fault),
                what="labels",
                key=rules.LABEL_KEY,
                key_expected=rules.LABEL_KEY_EXPECTED,
            ),
            doc="Labels of the run; Kubernetes' rules.",
            default="{}",
            example="{team: vision}",
        ),
        Field(
            name="aliases",
            kind=ListOf(item=ChoiceOf(options=ALIASES), what="skypilot, dstack"),
            doc="Also set the variables of these tools.",
            default="[]",
            example="[skypilot]",
        ),
        Field(
            name="params",
            kind=PARAMS,
            doc="Parameters of the run: `longboat.params()`, LONGBOAT_PARAM_NAME, and `${sweep.NAME}` in commands.",
            default="{}",
            example="{lr: 0.1}",
        ),
        Field(
            name="sweep",
            kind=SWEEP,
            doc="Parameters to be searched by `longboat sweep`: lists or ranges, and how.",
            example="{lr: [0.1, 0.01], width: [16, 64]}",
        ),
        Field(
            name="serve",
            kind=SERVE,
            doc="How `longboat serve` serves checkpoints of this job's runs; text is `run`.",
            example="{run: python app.py --port $PORT, replicas: 2, ready: /healthz}",
        ),
        Field(name="$schema", kind=Text(expected="a URL"), doc="For editors; ignored.", example="longboat.schema.json"),
    )
)
