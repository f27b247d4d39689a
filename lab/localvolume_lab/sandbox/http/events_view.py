"""events.k8s.io/v1: the same stored events under their newer field names.

JSON patches through the newer group address the stored, older names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localvolume_lab.sandbox.kinds import EVENTS, NEW_EVENTS

_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_OLD = {new: old for old, new in _TO_NEW.items()}


def to_new(event: Mapping[str, Any]) -> dict[str, Any]:
    """A core/v1 event as events.k8s.io/v1."""
    view = {_TO_NEW.get(field, field): value for field, value in event.items()}
    view["apiVersion"] = NEW_EVENTS.group_version
    return view


def to_old(event: Mapping[str, Any]) -> dict[str, Any]:
    """An events.k8s.io/v1 event as core/v1, which is how all events are stored."""
    view = {_TO_OLD.get(field, field): value for field, value in event.items()}
    if view.get("apiVersion") == NEW_EVENTS.group_version:
        view["apiVersion"] = EVENTS.group_version
    return view
