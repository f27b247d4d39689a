"""How often a command that goes on looking reads the cluster anew."""

from __future__ import annotations

import math

from localvolume.config.flags.table import Flag


def every(text: str) -> Flag:
    """The flag for it, in seconds."""
    return Flag("--every", "SECONDS", text, parse=_seconds, default="5")


def _seconds(text: str) -> float:
    """Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 3600:
        raise ValueError(f"{text} is not a number of seconds from 1 to 3600")
    return value
