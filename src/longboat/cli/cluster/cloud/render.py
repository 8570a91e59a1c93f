"""`longboat cluster render`: the cloud's own template and parameters, for people who deploy by their own tools."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from longboat.cli.cluster.cloud.plan import cloud_of, cost_of, machine_table
from longboat.cli.cluster.target import named_cluster
from longboat.cli.output.formats import to_json
from longboat.cli.output.terminal import say
from longboat.clusters.cloud.aws.templates import template as aws
from longboat.clusters.cloud.aws.templates.intrinsics import CLUSTER_TAG, stack_name
from longboat.clusters.cloud.azure import template as azure
from longboat.clusters.cloud.gcp import request as gcp
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import EngineError, UsageError
from longboat.engines.shared.files import make_folder, write_bytes

PARAMETERS = "parameters.json"


@click.command("render", short_help="Write the template of a cluster in a cloud.")
@click.argument("file", required=False, metavar="[FILE|NAME]")
@click.option("-o", "--output", metavar="DIR", help="Folder for the files (default: the template to stdout).")
@click.option("--force", is_flag=True, help="Overwrite the files.")
def command(file: str | None, output: str | None, force: bool) -> None:
    """Write the template of a cluster in a cloud: for CloudFormation, ARM, or the API of GKE. Nothing is contacted."""
    spec = named_cluster(file)
    cost = cost_of(spec)
    files = rendered(spec)
    template = next(iter(files))
    if output is None:
        print(files[template], end="")
    else:
        folder = Path(output)
        taken = [name for name in files if os.path.lexists(folder / name)]
        if taken and not force:
            raise UsageError(
                f"{folder / taken[0]} exists already", hint="--force overwrites it, -o names another folder"
            )
        try:
            make_folder(folder)
            for name, text in files.items():
                write_bytes(folder / name, text.encode())
        except EngineError as error:  # its hint is for files of the home
            raise EngineError(error.message, hint="-o names another folder") from None
        written = " and ".join(str(folder / name) for name in files)
        say(f"longboat: wrote {written}; next, with the cloud's own command:")
        say(deploy_command(spec, shlex.quote(str(folder / template)), shlex.quote(str(folder / PARAMETERS))))
    say(f"longboat: {cost.text}")


def rendered(spec: ClusterSpec) -> dict[str, str]:
    """Name of a file to its text: the template, then the parameters as the cloud's command takes them."""
    cloud = cloud_of(spec)
    if spec.kind == "gcp":
        request = gcp.make_request(spec.name, cloud, machine_table(spec), known_project() or gcp.ANY_PROJECT)
        return {"request.json": f"{to_json(request)}\n"}
    if spec.kind == "azure":
        body = {
            "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
            "contentVersion": "1.0.0.0",
            "parameters": {name: {"value": value} for name, value in azure.parameter_values(cloud).items()},
        }
        template = to_json(azure.make_template(spec.name, cloud))
        return {"template.json": f"{template}\n", PARAMETERS: f"{to_json(body)}\n"}
    values = aws.parameter_values(cloud)
    records = [{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()]
    return {"template.yaml": aws.template_text(spec.name, cloud), PARAMETERS: f"{to_json(records)}\n"}


def known_project() -> str:
    return os.environ.get("GOOGLE_CLOUD_PROJECT") or ""


def deploy_command(spec: ClusterSpec, template: str, parameters: str) -> str:
    cloud = cloud_of(spec)
    if spec.kind == "gcp":
        url = f"https://container.googleapis.com/v1/projects/$PROJECT/locations/{cloud.region}/clusters"
        token = '"Authorization: Bearer $(gcloud auth print-access-token)"'
        curl = f"curl -H {token} -H 'Content-Type: application/json'"
        if cloud.autoscaler and not known_project():
            return f"sed s/[$]PROJECT/$PROJECT/ {template} | {curl} -d @- {url}"
        return f"{curl} -d @{template} {url}"
    name = stack_name(spec.name)
    if spec.kind == "azure":
        tags = {**dict(cloud.tags), azure.CLUSTER_TAG: spec.name}
        marks = " ".join(shlex.quote(f"{key}={value}") for key, value in tags.items())
        return (
            f"az group create --name {name} --location {cloud.region} --tags {marks} && az deployment group create "
            f"--resource-group {name} --template-file {template} --parameters @{parameters}"
        )
    # The stack's tags become those of all that it makes; by its own `up`, `status` and `down` know it.
    tags = {**dict(cloud.tags), CLUSTER_TAG: spec.name}
    marks = " ".join(shlex.quote(f"Key={key},Value={value}") for key, value in tags.items())
    return (
        f"aws cloudformation create-stack --region {cloud.region} --stack-name {name} --tags {marks} "
        f"--capabilities CAPABILITY_IAM --template-body file://{template} --parameters file://{parameters}"
    )
