"""What the tests of health ask of a node: what stands on a volume, what was said, what is told."""

from __future__ import annotations

from typing import Any

from localvolume.health.model import Patience
from tests.cluster.support_agent import Lab
from tests.cluster.support_endpoints import samples

HEALTH = "localvolume.dev/health"

QUICK = Patience(gone=0.3, over=0.3, again=0.1, rest=0.05, look=0.3)


def written(lab: Lab, name: str) -> str:
    """What the PersistentVolume says of its health, "" for nothing."""
    found = lab.volume(name)
    assert found is not None, "the PersistentVolume is gone"
    return str(found["metadata"].get("annotations", {}).get(HEALTH, ""))


def says(lab: Lab, name: str, text: str) -> str:
    """Wait until it says something with that text in it; "" for until it says nothing."""
    return lab.until(lambda: written(lab, name), lambda found: text in found if text else not found)


def told(lab: Lab) -> list[dict[str, str]]:
    """The labels of the volumes that /metrics tells are not well."""
    return [
        labels for labels, value in samples(lab.port, "localvolume_volume_unhealthy") if value == 1
    ]


def looks(lab: Lab) -> float:
    return lab.metric("localvolume_health_looks_total") or 0


def looked(lab: Lab) -> None:
    """Wait until the node was looked at again, from the beginning to the end."""
    before = lab.until(lambda: looks(lab), bool)
    # The next one to be counted may have begun before now; and what the one after it has found is
    # written once it is counted, but before the third is.
    lab.until(lambda: looks(lab), lambda count: count >= before + 3)


def events(lab: Lab, name: str, reason: str = "VolumeUnhealthy") -> list[dict[str, Any]]:
    return [event for event in lab.events(name) if event["reason"] == reason]


def times(lab: Lab, name: str, reason: str = "VolumeUnhealthy") -> int:
    """How often that was said of the object."""
    return sum(event["count"] for event in events(lab, name, reason))
