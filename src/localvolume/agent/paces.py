"""The paces of all that one agent does, for whoever starts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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

    stuck: float = 120.0
    """A look at the node that takes longer is stuck: the process asks to be restarted."""

    blind: float = 5.0
    """Without inotify, how often the discovery directories are looked at and it is asked for
    again."""
