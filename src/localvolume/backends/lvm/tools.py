"""What every part of the LVM backend works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from localvolume.backends.lvm.engine import Engine
from localvolume.backends.lvm.view import NoPool, View, view_of
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import BackendFailed, Busy, Impossible, NoSpace
from localvolume.backends.pool.root import PoolUnusable
from localvolume.config.pools import PoolConfig
from localvolume.host.block.blockdev import InUse, NotABlockDevice
from localvolume.host.lvm.commands import (
    BadName,
    BadReport,
    LvmFailed,
    NoSpaceInGroup,
    VolumeInUse,
)
from localvolume.host.process.commandsync import Run
from localvolume.volumes.lvtags import BadTag


class Take(Protocol):
    """Does what takes `more` bytes of the pool, if it has them, while nobody else of ours takes
    any; `act` is given the pool as it is then. Raises NoSpace, and what `act` raises.
    """

    def __call__(self, seen: View, act: Callable[[View], None], more: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Tools(Engine):
    """One pool's configuration, and the engine of its group."""

    config: PoolConfig
    run: Run
    zeroing: Zeroing

    def read(self) -> View:
        """The pool as it is now. Raises NoPool, LvmFailed, BadReport, OSError."""
        return view_of(self.of, *self.lvm.whole(self.of.group))


@contextmanager
def translated(pool: str) -> Iterator[None]:
    """Translate the errors of LVM and the kernel into what the caller must do about them."""
    try:
        yield
    except NoSpaceInGroup as error:
        raise NoSpace(f"the pool {pool}: {error}") from error
    except (BadName, BadTag) as error:
        raise Impossible(f"the pool {pool}: {error}") from error
    except (VolumeInUse, InUse) as error:
        raise Busy(f"the pool {pool}: it is in use: {error}") from error
    except (LvmFailed, BadReport, NoPool, PoolUnusable, NotABlockDevice, OSError) as error:
        raise BackendFailed(f"the pool {pool}: {error}") from error
