"""The autoscaler's role on Google Cloud: enough for the provider, and every permission is needed.

The simulated Google Cloud denies every request whose permission was not granted.
"""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.gcp.provider import GoogleProvider
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.clusters.cloud.gcp.permissions import autoscaler_role
from tests.clouds.gcp.simulated_google import SimulatedGoogle


def scale(provider: GoogleProvider) -> None:
    """Everything that the provider does."""
    (pool,) = provider.discover().pools
    provider.grow(pool, MachineRequest(token="a1", count=2))
    provider.shrink(pool, [machine.id for machine in provider.list([pool]).machines], ["a1"])


def test_the_autoscalers_role_is_enough(google: SimulatedGoogle) -> None:
    google.add_pool("gpu")
    google.granted = set(autoscaler_role().permissions)
    scale(google.provider())
    assert google.denied == [] and google.used == set(autoscaler_role().permissions)


@pytest.mark.parametrize("permission", autoscaler_role().permissions)
def test_every_right_of_the_autoscaler_is_needed(
    permission: str,
    google: SimulatedGoogle,
) -> None:
    google.add_pool("gpu")
    google.granted = set(autoscaler_role().permissions) - {permission}
    with pytest.raises(ProviderError) as caught:
        scale(google.provider())
    assert caught.value.kind == "auth" and permission in caught.value.message
