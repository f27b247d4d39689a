"""What mkfs.xfs is to leave out, so that older kernels than those of its own time can mount it.

The program may be a container's, newer than the node's kernel: it chooses what kernels of its own
time know, and another kernel refuses the whole filesystem. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

VERSION_COMMAND: Final = ("mkfs.xfs", "-V")

_VERSION: Final = re.compile(r"version (\d+)\.(\d+)")
#: The release that knows nrext64, a feature of Linux 5.19. What is older refuses the word itself;
#: what is much newer chooses the feature.
_NREXT64_SINCE: Final = (5, 19)


def for_older_kernels(version: str, options: Sequence[str]) -> list[str]:
    """Options for mkfs.xfs, as words, beside `options`, the words that somebody chose.

    `version` is what VERSION_COMMAND writes.
    """
    # An xfs of version 4, which they may have chosen, has no reflinks.
    wanted = [] if "-m" in options else [("-m", "reflink", "1")]
    wanted.append(("-m", "rmapbt", "0"))
    found = _VERSION.search(version)
    if found is not None and (int(found[1]), int(found[2])) >= _NREXT64_SINCE:
        wanted.append(("-i", "nrext64", "0"))
    # To be told of one feature twice is an error to it.
    untold = [one for one in wanted if not any(one[1] in word for word in options)]
    return [word for flag, name, value in untold for word in (flag, f"{name}={value}")]
