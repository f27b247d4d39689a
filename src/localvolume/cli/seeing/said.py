"""Events for people and programs: what was said, by whom, and whether that was one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from localvolume.cli.rows import shortened
from localvolume.cli.seeing.facts import is_from_us
from localvolume.cli.seeing.kinds import SeenEvent

LONGEST: Final = 128
"""How many characters of a writer's name are shown: as many as the API allows in new Events."""

OURS_ALONE: Final = frozenset(
    {
        "CSIRegistrationFailed",
        "CSIRegistrationFailedOver",
        "CapacityNotPublished",
        "CapacityNotPublishedOver",
        "ConfigurationChanged",
        "ConfigurationInvalid",
        "DiskFormatFailed",
        "DiskFormatted",
        "DiskMountFailed",
        "DiskMounted",
        "DiskPlanChanged",
        "DisksNotApproved",
        "NodeTaintNotRemoved",
        "NodeTaintRemoved",
        "PoolProblem",
        "PoolProblemOver",
        "PoolWarning",
        "PoolWarningOver",
        "ReferencedNodeDeleted",
        "ReferencedNodeReturned",
        "SnapshotLost",
        "SnapshotReserveFilling",
        "VolumeAbandoned",
        "VolumeCleaned",
        "VolumeCleaningWaits",
        "VolumeDelete",
        "VolumeDuplicate",
        "VolumeFailedDelete",
        "VolumeHealthy",
        "VolumeKeptFromClaim",
        "VolumeLimitEscaped",
        "VolumeLimitsNotKept",
        "VolumeMoved",
        "VolumeNamesTaken",
        "VolumeNotItsOwn",
        "VolumeNotMoved",
        "VolumeNotRecorded",
        "VolumePutRight",
        "VolumeReleased",
        "VolumeReplaced",
        "VolumeSizeDiffers",
        "VolumeUnhealthy",
        "VolumeUnknownReclaimPolicy",
        "VolumeUnsupportedReclaimPolicy",
        "VolumeVanished",
    }
)
"""Reasons of ours that tell of our own work: from others, they are no word of an agent. The reasons
that provisioners, resizers and snapshotters share are not among them."""


def event_shape(event: SeenEvent) -> dict[str, Any]:
    """For programs; `by` and `instance` are what the Event itself says of its writer.

    `ours`: whether that is one of ours; False only where the reason makes it look so, and None for
    what others say in words of their own.
    """
    return {
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "time": event.seen,
        "count": event.times,
        "by": _component(event),
        "instance": _instance(event),
        "ours": is_from_us(event) or (False if event.reason in OURS_ALONE else None),
    }


def by_whom(event: Mapping[str, Any]) -> str:
    """For people, from the shape: `by kubelet on n1`."""
    who = shortened(event["by"], LONGEST) or "nobody"
    on = f" on {shortened(event['instance'], LONGEST)}" if event["instance"] else ""
    return f"by {who}{on}{', not localvolume' if event['ours'] is False else ''}"


def _component(event: SeenEvent) -> str:
    """The API has two fields for it. Both are named if they differ."""
    said = (event.source.component, event.reporting_component)
    return ", ".join(dict.fromkeys(one for one in said if one))


def _instance(event: SeenEvent) -> str:
    return event.source.host or event.reporting_instance
