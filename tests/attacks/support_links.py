"""Where the links of images lead."""

import contextlib
import os
from pathlib import Path

from localvolume.host.loop.attach import look


def behind(link: Path) -> tuple[int, int] | None:
    """What stands behind the loop device to which it leads, as `Loop.behind`.

    None where it leads nowhere, as it does for a moment while it is led elsewhere.
    """
    with contextlib.suppress(FileNotFoundError):
        found = look(os.readlink(link))
        return found and found.behind
    return None
