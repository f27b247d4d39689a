"""Which mount options a volume may have: one rule for classes, calls and mounts. Pure.

The mount tells whether the kernel knows an option; a directory (bindmount) takes fewer still.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from localvolume.config.syntax.readers import quoted

MOST: Final = 64

_WORD: Final = re.compile(r"[A-Za-z0-9_=.:/^@+%-]{1,255}")
_ELSE: Final = frozenset(
    {
        *("bind", "rbind", "move", "remount", "loop", "offset", "sizelimit"),
        *("shared", "slave", "private", "unbindable"),
        *("rshared", "rslave", "rprivate", "runbindable"),
    }
)
"""Options that would make the command something other than a mount of this device."""


def faults_of(options: Sequence[str]) -> list[str]:
    """One text for each fault of the options. One may be a list, as mount -o takes it."""
    words = [word for option in options for word in option.split(",")]
    if len(words) > MOST:
        return [f"there are {len(words)} mount options, and no more than {MOST} are taken"]
    return [
        f"{quoted(word)} is no mount option that a volume may have"
        for word in words
        if not _WORD.fullmatch(word) or word.partition("=")[0] in _ELSE
    ]
