"""How CSI calls what is wrong with a volume: the status of each reason that health reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from localvolume.csi.limits import short
from localvolume.csi.wire import messages

Status = Literal["DEGRADED", "INACCESSIBLE", "DATA_LOSS"]

_STATUSES: Final[Mapping[str, Status]] = {
    "DeviceGone": "INACCESSIBLE",
    "ReadOnly": "DEGRADED",
    "IOErrors": "DEGRADED",
    "PoolFull": "DEGRADED",
    "PoolFilling": "DEGRADED",
}


def status_of(reason: str) -> Status:
    """The status of a reason of ours; DEGRADED for one that is not known here.

    Callers may give up a volume for DATA_LOSS, and restore an older state of it. None of our
    reasons proves that data is lost: a filesystem that has counted errors is repaired first.
    """
    return _STATUSES.get(reason, "DEGRADED")


def volume_health(name: str, problems: Sequence[tuple[str, str]]) -> Any:
    """The message that says what is wrong with a volume; it is empty if nothing is known to be.

    A reason occurs once, with its first sentence: CSI requires that.
    """
    first: dict[str, str] = {}
    for reason, text in problems:
        first.setdefault(reason, text)
    entries = [
        {"status": status_of(reason), "reason": short(reason), "message": short(text)}
        for reason, text in first.items()
    ]
    return messages.VolumeHealth(volume_id=name, health_statuses=entries)
