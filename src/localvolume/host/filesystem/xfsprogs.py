"""What mkfs.xfs must leave out so that kernels older than itself can mount the filesystem.

The program may come from a container and be newer than the node's kernel. It chooses features that
kernels of its own time know, and an older kernel refuses the whole filesystem. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

VERSION_COMMAND: Final = ("mkfs.xfs", "-V")

_VERSION: Final = re.compile(r"version (\d+)\.(\d+)")
#: The first release that knows nrext64, a feature of Linux 5.19. Older ones refuse the word itself;
#: much newer ones choose the feature.
_NREXT64_SINCE: Final = (5, 19)


def for_older_kernels(version: str, options: Sequence[str]) -> list[str]:
    """Options for mkfs.xfs, as words, to add to `options`, the words that somebody chose.

    `version` is what VERSION_COMMAND prints.
    """
    # The chosen -m may ask for an xfs of version 4, which has no reflinks.
    wanted = [] if "-m" in options else [("-m", "reflink", "1")]
    wanted.append(("-m", "rmapbt", "0"))
    found = _VERSION.search(version)
    if found is not None and (int(found[1]), int(found[2])) >= _NREXT64_SINCE:
        wanted.append(("-i", "nrext64", "0"))
    # mkfs.xfs fails if it is told of one feature twice.
    untold = [one for one in wanted if not any(one[1] in word for word in options)]
    return [word for flag, name, value in untold for word in (flag, f"{name}={value}")]
