"""Kinds of clouds: the table of fields of each, and the rules across them."""

from __future__ import annotations

from longboat.clusters.cloud.aws.fields import AWS_FILE
from longboat.clusters.cloud.azure.fields import AZURE_FILE
from longboat.clusters.cloud.consistency import AwsFileCheck, AzureFileCheck, CloudFileCheck, GcpFileCheck
from longboat.clusters.cloud.gcp.fields import GCP_FILE
from longboat.specs.fields.composites import Shape

CLOUDS: dict[str, tuple[Shape, type[CloudFileCheck]]] = {
    "aws": (AWS_FILE, AwsFileCheck),
    "azure": (AZURE_FILE, AzureFileCheck),
    "gcp": (GCP_FILE, GcpFileCheck),
}
