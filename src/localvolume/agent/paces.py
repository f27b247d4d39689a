"""The paces of all that one agent does, for whoever starts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localvolume.kube.client import WATCH_GRACE_SECONDS, WATCH_SECONDS
from localvolume.static.paces import StaticPaces

if TYPE_CHECKING:
    from localvolume.dynamic.paces import DynamicPaces
    from localvolume.flexvolume.paces import FlexPaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """The roles' own, and those of the process, in seconds.

    None: the role's defaults, which an agent without that role need not carry.
    """

    static: StaticPaces = field(default_factory=StaticPaces)
    dynamic: DynamicPaces | None = None
    flexvolume: FlexPaces | None = None

    disks_recheck: float = 30.0
    """When disks are looked at once more after their plan has become another: that may be no more
    than somebody having had a look, who has a disk to himself meanwhile (udev, `localvolume plan`).
    """

    taint_first_wait: float = 1.0
    taint_longest_wait: float = 60.0
    """Bounds of the time between two attempts to remove the Node's taint: an administrator may have
    to allow it."""

    watch: tuple[float, float] = WATCH_SECONDS
    """Between which bounds a watch of the API server lasts."""

    watch_grace: float = WATCH_GRACE_SECONDS
    """What a server may be late with closing a watch."""

    stuck: float = 120.0
    """A look at the node that takes longer is stuck: the process asks to be restarted."""

    blind: float = 5.0
    """Without inotify, how often the discovery directories are looked at and it is asked for
    again."""
