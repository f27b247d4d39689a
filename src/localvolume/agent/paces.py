"""The paces of everything an agent does, set by the code that starts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localvolume.kube.client import WATCH_GRACE_SECONDS, WATCH_SECONDS
from localvolume.static.paces import StaticPaces

if TYPE_CHECKING:
    from localvolume.csi.paces import CsiPaces
    from localvolume.dynamic.paces import DynamicPaces
    from localvolume.flexvolume.paces import FlexPaces
    from localvolume.snapshots.paces import SnapshotPaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """The paces of the roles and of the process, in seconds.

    None: the role's defaults, which an agent without that role need not import.
    """

    static: StaticPaces = field(default_factory=StaticPaces)
    dynamic: DynamicPaces | None = None
    flexvolume: FlexPaces | None = None
    csi: CsiPaces | None = None
    snapshots: SnapshotPaces | None = None

    disks_recheck: float = 30.0
    """How long after a change of their plan disks are looked at again: the change may only mean
    that udev or `localvolume plan` was looking, which holds a disk exclusively meanwhile."""

    disks_told: float = 30.0
    """The least time between two writes of what raw disks the node has."""

    taint_first_wait: float = 1.0
    taint_longest_wait: float = 60.0
    """Bounds of the time between two attempts to remove the Node's taint: an administrator may
    have to grant the right to do so."""

    watch: tuple[float, float] = WATCH_SECONDS
    """The shortest and the longest time that a watch of the API server lasts."""

    watch_grace: float = WATCH_GRACE_SECONDS
    """How late the server may be in closing a watch."""

    stuck: float = 120.0
    """A look at the node that takes longer is stuck: the process asks to be restarted."""

    blind: float = 5.0
    """Without inotify: how often to look at the discovery directories and to try inotify again."""
