"""What an agent does to disks: whoever starts it may stand beside, at the moment of acting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localvolume.cleaning.run import Cleaning, clean

if TYPE_CHECKING:
    from localvolume.disks.act import CarryOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Deeds:
    """The functions that do it."""

    clean: Cleaning = clean

    carry_out: CarryOut | None = None
    """None: the role's own, which an agent that formats nothing need not carry."""
