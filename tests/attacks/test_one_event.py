"""A fault that lasts is one Event whose count rises, however often what fails is tried."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.support_dynamic import Claim, DynamicLab, Volume
from tests.host.support_devices import immutable

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

ATTEMPTS = 5


def lasting(lab: DynamicLab, name: str, reason: str) -> dict[str, Any]:
    """The one Event of that reason on the object, once it was tried several times."""

    def said() -> list[dict[str, Any]]:
        return [one for one in lab.events(name) if one["reason"] == reason]

    def often(found: list[dict[str, Any]]) -> bool:
        return sum(int(one["count"]) for one in found) >= ATTEMPTS

    (event,) = lab.until(said, often)
    assert event["type"] == "Warning"
    return event


@pytest.fixture
def node(dynamic: DynamicLab) -> DynamicLab:
    """What fails is tried again soon, after waits that grow by whole seconds: no two alike."""
    dynamic.hurry_dynamic(first_wait=0.5, longest_wait=4.0)
    return dynamic


def name_of(claim: Claim) -> str:
    return str(claim["metadata"]["name"])


def served(node: DynamicLab, cls: str) -> tuple[Claim, Volume]:
    """A claim that has its volume, of which nothing is to be written down any more."""
    claim = node.claim(cls)
    volume = node.made(claim)
    node.claim_event(claim, "ProvisioningSucceeded")
    return claim, volume


def test_a_growth_that_fails(node: DynamicLab) -> None:
    pool = node.pool()
    cls = node.storage_class()
    node.start()
    claim, _ = served(node, cls)
    with immutable(pool.directory / ".localvolume" / "records"):
        node.grow(claim, "16Mi")
        event = lasting(node, name_of(claim), "VolumeResizeFailed")
    assert event["message"].endswith("it is tried again")


def test_a_volume_that_cannot_be_made(node: DynamicLab) -> None:
    pool = node.pool()
    cls = node.storage_class()
    node.start()
    served(node, cls)
    with immutable(pool.directory / ".localvolume" / "records"):
        claim = node.claim(cls)
        event = lasting(node, name_of(claim), "ProvisioningFailed")
    assert event["message"].endswith("it is tried again")
    node.made(claim)


def test_a_volume_that_cannot_be_removed(node: DynamicLab) -> None:
    pool = node.pool()
    cls = node.storage_class()
    node.start()
    claim, volume = served(node, cls)
    with immutable(pool.directory):
        node.delete(claim)
        event = lasting(node, volume["metadata"]["name"], "VolumeFailedDelete")
    assert event["message"].endswith("it is tried again")
    node.gone(volume)
