"""The job of one replica: the training's code, image, environment, data and volumes with the server's command. Pure."""

from __future__ import annotations

import re

from longboat.core.errors import UsageError
from longboat.core.jobs import Checkpoints, Command, Job, Retries, Role, Serve

ROLE = "server"
_VARIABLES = re.compile(r"\$(?:\{(PORT|HOST)\}|(PORT|HOST)\b)")
_PORT_OPTIONS = ("--port", "--http-port", "--server-port")


def trained_role(job: Job) -> Role:
    """The role that writes checkpoints: its image and variables are those of the servers."""
    return job.role(job.ends[0]) if job.ends else job.roles[0]


def replica_job(job: Job, serve: Serve, *, name: str, command: Command, host: str, port: int) -> Job:
    """`checkpoints.resume` and labels are the caller's to set: where a checkpoint lies depends on the engine."""
    role = trained_role(job)
    env = {**role.env, "HOST": host, "PORT": str(port)}
    server = Role(
        name=ROLE,
        run=with_values(command, env),
        image=role.image,
        env=env,
        resources=serve.resources,
    )
    return Job(
        name=name,
        roles=(server,),
        framework="none",
        framework_reason="it serves",
        ends=(ROLE,),
        setup=job.setup,
        workdir=job.workdir,
        include=job.include,
        exclude=job.exclude,
        secrets=job.secrets,
        volumes=job.volumes,
        data=job.data,
        checkpoints=Checkpoints(),
        retries=Retries(),
        grace_s=job.grace_s,
        queue=job.queue,
        priority=job.priority,
        aliases=job.aliases,
    )


def with_values(command: Command, values: dict[str, str]) -> Command:
    """`$PORT` and `$HOST` filled in where no shell does it."""
    if isinstance(command, str):
        return command
    return tuple(_VARIABLES.sub(lambda match: values[match[1] or match[2]], word) for word in command)


def checked_command(words: tuple[str, ...]) -> tuple[Command, str | None]:
    """The command after `--`, and a notice where the caller's own shell has taken its `$PORT` away.

    One word with spaces is a shell line, as for `longboat run`.
    """
    if not words or not words[0].strip():
        raise UsageError("no command to serve with", hint="longboat serve RUN -- python app.py --port '$PORT'")
    if len(words) == 1 and len(words[0].split()) > 1:
        return words[0], None
    last = words[-1]
    if last in _PORT_OPTIONS or last in tuple(f"{option}=" for option in _PORT_OPTIONS):
        filled = (*words[:-1], last + "$PORT") if last.endswith("=") else (*words, "$PORT")
        return filled, f"{last} has no value: each replica gets its own port there (quote it: '$PORT')"
    if last == "" and words[-2:-1] and words[-2] in _PORT_OPTIONS:
        return (*words[:-1], "$PORT"), f"{words[-2]} is empty: each replica gets its own port there (quote it: '$PORT')"
    return words, None
