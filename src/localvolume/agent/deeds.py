"""What an agent does to disks, as functions that the code that starts it may wrap or replace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localvolume.cleaning.run import Cleaning, clean

if TYPE_CHECKING:
    from localvolume.disks.act import CarryOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Deeds:
    """The functions that act on disks."""

    clean: Cleaning = clean

    carry_out: CarryOut | None = None
    """None: the role's own, which an agent that formats nothing need not import."""
