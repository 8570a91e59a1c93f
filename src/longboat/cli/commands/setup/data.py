"""`longboat data`: what `data` of jobs, or `data import`, brought onto a shared volume."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from longboat.cli.commands.setup.volume import cluster_options, open_cluster
from longboat.cli.input.arguments import output_option
from longboat.cli.output.formats import plain, show
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import clean, note, say
from longboat.cli.output.times import show_duration
from longboat.core.errors import EngineError, NotFound, UsageError

if TYPE_CHECKING:
    from longboat.core.jobs import DataImport
    from longboat.storage.imported.imported_data import ImportedData

Ask = Callable[..., Any]
"""A verb of `storage.import_program` with its arguments but the folder -> its answer."""
MOUNT = "/longboat-data"


@click.group("data", short_help="List, import, verify and remove data on a shared volume.")
def command() -> None:
    """Data that `data` of a job, or `data import`, brought onto a volume: once, for all runs.

    VOLUME is a claim of the cluster; with a / in it, a folder of this machine.
    """


@command.command("ls", short_help="List the imports on a volume.")
@click.argument("volume")
@output_option()
@cluster_options
def list_command(volume: str, output: str) -> None:
    """List the imports on a volume: where from, where to, how much, when, and whether they are still there."""
    with opened(volume) as ask:
        listed = imports_of(ask)
    if not listed and output in ("table", "wide"):
        say(f"nothing was imported into {volume}: longboat data import URL {volume}")
        return
    show(listed, output, record=plain, tables=lambda wide: print_imports(listed, wide=wide))


@command.command("import", short_help="Bring a URL onto a volume, once for all runs.")
@click.argument("url")
@click.argument("target", metavar="VOLUME[/FOLDER]")
@click.option("--sha256", metavar="HASH", help="Refuse any other content.")
@click.option("--no-unpack", is_flag=True, help="Keep an archive as it is.")
@click.option("--refresh", is_flag=True, help="Import again if the source has changed since (ETag, time of change).")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="A secret or variable the store needs.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable the store needs.")
@click.option("-d", "--detach", is_flag=True, help="Do not wait: print the name of the run that imports it.")
@cluster_options
def import_command(url: str, target: str, sha256: str | None, no_unpack: bool, refresh: bool, **options: Any) -> int:
    """Bring a URL onto a volume, once: in a cluster by one run, which all who ask for the same wait for.

    A job whose `data` names the same url and folder then finds it in place.
    """
    from longboat.core.jobs import DataImport
    from longboat.storage.imported.imported_data import place_in
    from longboat.storage.urls import check_import

    check_import(url, sha256)
    volume, folder = split_target(target)
    item = DataImport(url=url, to=place_in(MOUNT, folder), sha256=sha256, unpack=not no_unpack)
    if refresh:
        forget_changed(volume, folder, item)
    if is_local(volume):
        return import_here(item, Path(volume))
    return import_there(item, volume, **options)


@command.command("verify", short_help="Check that imports are there as they were.")
@click.argument("volume")
@click.argument("folders", nargs=-1, metavar="[FOLDER]...")
@click.option("--source", is_flag=True, help="Ask the sources, too, whether they have changed since (ETag).")
@cluster_options
def verify_command(volume: str, folders: Sequence[str], source: bool) -> int:
    """Check that what was imported is there as it was: files, bytes, of a single file the sha256. Exit code 1: not.

    With --source, this machine asks the sources with its own credentials. A signed URL is not kept, and not asked.
    """
    from longboat.storage.imported.imported_data import source_news

    with opened(volume) as ask:
        chosen = select(imports_of(ask), folders, volume)
        troubles = [str(ask("check", each.folder, each.key).get("trouble") or "") for each in chosen]
    bad = 0
    for each, trouble in zip(chosen, troubles):
        news = source_news(each, os.environ) if source and not trouble else ""
        is_bad = bool(trouble) or news.startswith("changed")
        bad += is_bad
        print(f"{each.folder}: {clean(each.url or each.key)}: {clean(trouble or news or 'as it was imported')}")
    return 1 if bad else 0


@command.command("rm")
@click.argument("volume")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER|KEY...")
@cluster_options
def remove_command(volume: str, folders: Sequence[str]) -> None:
    """Remove imports and their files from a volume. What another import has brought too stays."""
    if not is_local(volume):
        refuse_used(volume)
    with opened(volume) as ask:
        for each in select(imports_of(ask), folders, volume):
            removed = ask("drop", each.folder, each.key).get("removed") or ()
            print(f"{each.folder}: {clean(each.url or each.key)}")
            if len(removed) < len(each.names):
                note(f"{each.folder}: what another import has brought too stays")


# places


def is_local(volume: str) -> bool:
    return "/" in volume or volume in (".", "..")


def split_target(target: str) -> tuple[str, str]:
    """The volume and the folder in it; a folder of this machine has none besides."""
    if target.startswith(("/", "./", "../")) or target in (".", ".."):
        return target if "/" in target else f"{target}/", ""
    volume, _, folder = target.partition("/")
    return volume, folder.strip("/")


@contextlib.contextmanager
def opened(volume: str) -> Iterator[Ask]:
    """Verbs over the folder, here or in a pod that mounts the claim."""
    from longboat.storage.imported import import_program

    if is_local(volume):
        root = os.path.abspath(volume)

        def ask(verb: str, *words: str) -> Any:
            try:
                return getattr(import_program, verb)(root, *words)
            except FileNotFoundError as error:
                raise NotFound(f"{error.filename}: {error.strerror}") from None
            except OSError as error:
                raise EngineError(f"cannot use {error.filename or root}: {error.strerror or error}") from None
            except ValueError as error:
                raise EngineError(str(error)) from None

        yield ask
        return
    from longboat.engines.kubernetes.exec.claims import find_volume
    from longboat.engines.kubernetes.exec.helper_pod import HelperPod, HelperPodOptions
    from longboat.engines.kubernetes.manifests.volumes import STORAGE
    from longboat.engines.kubernetes.records import Storage
    from longboat.engines.kubernetes.settings import DEFAULT_IMAGE

    place = open_cluster()
    settings, claim = place.settings, find_volume(place.client, volume)
    options = HelperPodOptions(pull_secrets=settings.pull_secrets, service_account=settings.service_account)
    image = settings.image or DEFAULT_IMAGE
    with HelperPod(place.client, Storage(claim=claim.name), image=image, options=options) as pod:
        yield lambda verb, *words: pod.ask(verb, STORAGE, *words, path=import_program.__file__)


def imports_of(ask: Ask) -> list[ImportedData]:
    from longboat.storage.imported.imported_data import read_imports

    return read_imports(ask("imports"))


def select(listed: Sequence[ImportedData], wanted: Sequence[str], volume: str) -> list[ImportedData]:
    """Those in these folders, or with these keys; all of them where none is named. Raises NotFound."""
    for text in wanted:
        if not any(text.strip("/") in (each.folder, each.key) for each in listed):
            raise NotFound(f"nothing was imported into {text} of {volume}", hint=f"longboat data ls {volume}")
    texts = {text.strip("/") for text in wanted}
    return [each for each in listed if not texts or texts & {each.folder, each.key}]


def refuse_used(volume: str) -> None:
    from longboat.core.errors import Refused
    from longboat.engines.kubernetes.exec.claims import find_volume

    view = find_volume(open_cluster().client, volume)
    users = [*(f"run {run}" for run in view.runs), *(f"pod {pod}" for pod in view.pods)]
    if users:
        raise Refused(f"the volume {volume} is used by {', '.join(users[:8])}", hint="stop them first")


# importing


def forget_changed(volume: str, folder: str, item: DataImport) -> None:
    """Remove an import whose source has changed since, so that it is made anew."""
    from longboat.storage.imported.imported_data import source_news
    from longboat.storage.urls import redacted

    with opened(volume) as ask:
        for each in imports_of(ask) if is_local(volume) is False or Path(volume).is_dir() else ():
            if each.folder == (folder or ".") and each.url == redacted(item.url):
                news = source_news(each, os.environ, url=item.url)
                say(f"longboat: {each.folder}: {clean(news)}")
                if news.startswith("changed"):
                    ask("drop", each.folder, each.key)


def import_here(item: DataImport, folder: Path) -> int:
    from longboat.storage.data import import_data

    fetched = import_data(item, folder, environment=os.environ)
    say(f"longboat: {'imported into' if fetched else 'it is there already, in'} {folder}")
    return 0


def import_there(
    item: DataImport, volume: str, *, secrets: Sequence[str], variables: Sequence[str], detach: bool
) -> int:
    from longboat.cli.commands.jobs.run import follow
    from longboat.engines.engine import Submission
    from longboat.engines.kubernetes.exec.claims import find_volume
    from longboat.specs.read import read_job
    from longboat.storage.imported.imported_data import run_name

    place = open_cluster()
    find_volume(place.client, volume)
    pairs = dict(parse_variable(text) for text in variables)
    data = {"url": item.url, "to": item.to, "unpack": item.unpack, **({"sha256": item.sha256} if item.sha256 else {})}
    fields: dict[str, object] = {
        "name": "import",
        "run": "true",
        "data": [data],
        "volumes": {MOUNT: {"claim": volume}},
        "env": pairs,
        "secrets": list(secrets),
        "retries": 2,
    }
    name = run_name(volume, item)
    with tempfile.TemporaryDirectory(prefix="longboat-") as empty:  # no code travels
        loaded = read_job([], fields=fields, environment=os.environ, cwd=Path(empty))
        submission = Submission(job=loaded.job, base=loaded.base, run_id=name, environment=dict(os.environ))
        with contextlib.suppress(NotFound):
            if place.status(name).is_final:  # of an import before: what is there is found by the next one
                place.delete(name)
        if detach:
            print(place.submit(submission).name)
            return 0
        return follow(place, submission, quiet=False)


def parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {text}: a variable and its value", hint="--env AWS_REGION=eu-central-1")
    return name, value


def print_imports(listed: Sequence[ImportedData], *, wide: bool) -> None:
    from longboat.core.resources import show_quantity

    rows: list[list[object]] = []
    for each in listed:
        size = None if each.size is None else show_quantity(each.size)
        age = None if each.time is None else show_duration(max(0.0, time.time() - each.time))
        state = "there" if each.is_there else "files are missing"
        row: list[object] = [each.folder, each.url or "(not told)", size, each.files, age, state]
        rows.append([*row, each.key, each.tag] if wide else row)
    head = ["FOLDER", "URL", "SIZE", "FILES", "AGE", "STATE"]
    print_table([*head, "KEY", "TAG"] if wide else head, rows)
