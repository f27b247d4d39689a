"""What the disk says, as what a caller of a pool must do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from localvolume.backends.model import BackendFailed, NoRoom
from localvolume.backends.pool.ground import PoolUnusable

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def told(pool: str) -> Iterator[None]:
    """Turn what is raised within into BackendFailed; NoRoom where the disk or a quota is full."""
    try:
        yield
    except PoolUnusable as error:
        raise BackendFailed(f"the pool {pool}: {error}") from error
    except OSError as error:
        kind = NoRoom if error.errno in _FULL else BackendFailed
        raise kind(f"the pool {pool}: {error}") from error
