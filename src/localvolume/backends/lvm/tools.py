"""What every part of the backend of logical volumes works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from localvolume.backends.lvm.view import NoPool, View, view_of
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import BackendFailed, Impossible, NoRoom, NotThisVolume
from localvolume.backends.pool.root import PoolUnusable
from localvolume.config.pools import LvmConfig, PoolConfig
from localvolume.host.block.blockdev import InUse, NotABlockDevice
from localvolume.host.lvm.commands import (
    BadName,
    BadReport,
    LogicalVolume,
    LvmFailed,
    NoRoomInGroup,
    VolumeInUse,
)
from localvolume.host.lvm.gate import GatedLvm
from localvolume.host.process.commandsync import Run
from localvolume.volumes.lvtags import BadTag, change, encode


class Take(Protocol):
    """Does what takes so many bytes of the pool, if they are there, while nobody else of ours takes
    any; `act` is given the pool as it is then. Raises NoRoom, and what `act` raises.
    """

    def __call__(self, seen: View, act: Callable[[View], None], more: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """One pool's configuration, and the hands to work in it."""

    config: PoolConfig
    of: LvmConfig
    lvm: GatedLvm
    run: Run
    zeroing: Zeroing

    def read(self) -> View:
        """The pool as it is now. Raises NoPool, LvmFailed, BadReport, OSError."""
        return view_of(self.of, *self.lvm.whole(self.of.group))

    def made(self, seen: View, name: str) -> LogicalVolume:
        """What LVM says that it has just made; raises BackendFailed where it is not there."""
        found = self.lvm.volume(seen.group.name, name)
        if found is None:
            raise BackendFailed(f"LVM says that it made {name}, and does not report it")
        return found

    def again(self, volume: LogicalVolume) -> LogicalVolume:
        """The very same volume as it is now. Raises NotThisVolume where it is gone or another."""
        found = self.lvm.volume(volume.group, volume.name)
        if found is None or found.uuid != volume.uuid:
            raise NotThisVolume(f"{volume.full_name} is not the volume any more that it was")
        return found

    def retag(self, volume: LogicalVolume, fields: Mapping[str, str]) -> LogicalVolume:
        """Let just these fields be ours in its tags, in one transaction."""
        gone, new = change(volume.tags, fields)
        self.lvm.retag(volume, gone, new)
        return replace(volume, tags=(volume.tags - gone) | encode(fields))

    def active(self, volume: LogicalVolume) -> LogicalVolume:
        """The volume with its device, which it is given if need be; its I/O goes on."""
        if volume.suspended:
            self.lvm.refresh(volume)
        if not volume.active:
            self.lvm.activate(volume)
        if volume.suspended or not volume.active or not volume.device:
            volume = self.again(volume)
        if not volume.active or not volume.device or volume.suspended:
            raise BackendFailed(f"{volume.full_name} cannot be activated")
        return volume


def is_down(volume: LogicalVolume) -> bool:
    """Whether nobody can use it as it is, as after a reboot or a killed command."""
    return volume.suspended or not volume.active


@contextmanager
def told(pool: str) -> Iterator[None]:
    """Turn what LVM and the kernel say within into what the caller must do about it."""
    try:
        yield
    except NoRoomInGroup as error:
        raise NoRoom(f"the pool {pool}: {error}") from error
    except BadName as error:
        raise Impossible(f"the pool {pool}: {error}") from error
    except (VolumeInUse, InUse) as error:
        raise BackendFailed(f"the pool {pool}: it is in use: {error}") from error
    except (LvmFailed, BadReport, NoPool, PoolUnusable, NotABlockDevice) as error:
        raise BackendFailed(f"the pool {pool}: {error}") from error
    except BadTag as error:
        raise Impossible(f"the pool {pool}: {error}") from error
    except OSError as error:
        raise BackendFailed(f"the pool {pool}: {error}") from error
