"""Volumes that are directories below one root, mounted where the kubelet wants them.

A volume is ours while there is a record of it: a file in `.localvolume` beside the directories,
written before the directory is made and removed after it. A pod sees only its own directory, so it
can neither read nor forge one. What has no record (`lost+found`, an administrator's directory) is
never touched. Sizes are noted, but not enforced.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from localvolume.backends.directory.trash import delete_directory
from localvolume.backends.model import BackendFailed
from localvolume.flexvolume.driver import (
    MADE,
    MAKING,
    NOTES_OF_THE_END,
    REMOVING,
    TAG_ON_REMOVAL,
    TAG_STATE,
    DriverFailed,
    Owned,
    Volume,
    same_owner,
)
from localvolume.flexvolume.drivers.devicemount import give
from localvolume.flexvolume.protocol import Refused, check_name
from localvolume.host.filesystem.inodeflags import unlock_beneath
from localvolume.host.mount import binding
from localvolume.host.mount.inuse import users_of
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.tree.beneath import LeadsOutside
from localvolume.host.tree.trees import (
    TEMPORARY,
    list_names,
    make_directory,
    opened,
    pinned,
    put_staged,
    read_file,
    rename_new,
    stage_file,
    sync_directory,
)

OURS: Final = ".localvolume"
RECORDS: Final = "flexvolumes"
TRASH: Final = "removed"
_SUFFIX: Final = ".json"
_MOST_BYTES: Final = 64 << 10
_MOST_STACKED: Final = 16
_MODE: Final = 0o755
_PLACE: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """A record. `id` tells a volume from an earlier one of its name."""

    id: str
    size_bytes: int
    tags: dict[str, str]


_decode: Final = msgspec.json.Decoder(Noted).decode


class BindDriver:
    """`root` is the directory of the volumes, on the host and here; it must exist."""

    def __init__(self, root: str) -> None:
        self._root = root

    # --- mounting ------------------------------------------------------------------------------

    def mount(self, volume: Volume, target: str) -> str:
        options = _options(volume)
        with self._opened() as root:
            self._see_to(root, volume)
            with _explained(volume.name), opened(root, volume.name) as fd:
                _mount_at(fd, volume, options, target)
                if volume.fs_group is not None and not volume.read_only:
                    give(fd, volume.fs_group)
        return "successfully created the volume"

    def _see_to(self, root: int, volume: Volume) -> None:
        """Make the record and the directory, as far as an earlier call has not made them."""
        name = volume.name
        there, noted = _is_there(root, name), _read(root, name)
        if noted is None:
            if there:
                raise DriverFailed(
                    f"{self._root}/{name} is there already, and nothing says that it was made for "
                    "this PersistentVolume: left as it is"
                )
            self._check_must_exist(volume)
            tags = {**volume.tags, TAG_STATE: MAKING}
            noted = Noted(id=secrets.token_hex(8), size_bytes=volume.size_bytes, tags=tags)
            _write(root, name, noted)
        if noted.tags.get(TAG_STATE) == REMOVING:
            raise DriverFailed(f"the volume {name} is being removed")
        if not same_owner(noted.tags, volume.tags):
            raise DriverFailed(
                f"{self._root}/{name} belongs to an earlier PersistentVolume of that name, whose "
                "claim was another: left as it is"
            )
        if not there:
            if noted.tags.get(TAG_STATE) == MADE:
                raise DriverFailed(f"{self._root}/{name} is gone, and its data with it")
            self._check_must_exist(volume)
        if not there or noted.tags.get(TAG_STATE) == MAKING:
            with _explained(name):
                make_directory(root, name, _MODE)
                with opened(root, name) as fd:
                    # A crash may have come between its making and that.
                    os.fchmod(fd, _MODE)
                sync_directory(root)
        tags = {**noted.tags, **volume.tags, TAG_STATE: MADE}
        for note in NOTES_OF_THE_END:
            tags.pop(note, None)
        if tags != noted.tags:
            _write(root, name, msgspec.structs.replace(noted, tags=tags))

    def _check_must_exist(self, volume: Volume) -> None:
        if volume.must_exist:
            raise DriverFailed(
                f"its claim has had the volume {volume.name}, and it is not in {self._root}: is "
                "its filesystem mounted? Nothing is made in its place"
            )

    def unmount(self, name: str, target: str) -> str:
        try:
            for _ in range(_MOST_STACKED):
                if not binding.unmount(target):
                    return "successfully removed the volume"
        except OSError as error:
            raise DriverFailed(f"{target} cannot be unmounted: {error.strerror}") from error
        raise DriverFailed(f"{target} is mounted again and again")

    # --- what there is -------------------------------------------------------------------------

    def list_volumes(self) -> list[Owned]:
        found = []
        with self._opened() as root:
            for name in _recorded(root):
                try:
                    noted = _read(root, name)
                except DriverFailed as error:
                    # The other volumes have records of their own, which can be read.
                    found.append(Owned(name=name, size_bytes=0, tags={}, problem=str(error)))
                    continue
                if noted is not None:
                    found.append(
                        Owned(name=name, size_bytes=noted.size_bytes, tags=noted.tags, id=noted.id)
                    )
        return found

    def note(self, name: str, tags: Mapping[str, str]) -> None:
        with self._opened() as root:
            noted = _read(root, name)
            if noted is None:
                return
            merged = {key: value for key, value in {**noted.tags, **tags}.items() if value}
            if merged != noted.tags:
                _write(root, name, msgspec.structs.replace(noted, tags=merged))

    def is_in_use(self, name: str) -> bool:
        with self._opened() as root:
            try:
                return bool(self._users(root, name))
            except FileNotFoundError:
                return False
            except (OSError, ValueError):
                return True

    def _users(self, root: int, name: str) -> list[str]:
        with pinned(root, name) as fd:
            return users_of(fd, f"{os.path.realpath(self._root)}/{name}")

    def grow(self, name: str, size_bytes: int) -> int:
        with self._opened() as root:
            noted = _read(root, name)
            if noted is None:
                raise DriverFailed(f"there is no volume {name}")
            if noted.size_bytes < size_bytes:
                _write(root, name, msgspec.structs.replace(noted, size_bytes=size_bytes))
        return size_bytes

    # --- removing ------------------------------------------------------------------------------

    def remove(self, volume: Owned) -> None:
        name = volume.name
        with self._opened() as root:
            noted = _read(root, name)
            if noted is None:
                return
            same = {**noted.tags, TAG_STATE: ""} == {**volume.tags, TAG_STATE: ""}
            if noted.id != volume.id or not same:
                raise DriverFailed(f"the volume {name} is not the one that was to be removed")
            if noted.tags.get(TAG_ON_REMOVAL) == "discard":
                raise DriverFailed(f"the data of {name} is to be discarded: no directory can be")
            with _explained(name), suppress(FileNotFoundError):
                if users := self._users(root, name):
                    raise DriverFailed(f"the volume {name} is in use: {users[0]}")
            gone = msgspec.structs.replace(noted, tags={**noted.tags, TAG_STATE: REMOVING})
            if gone != noted:
                _write(root, name, gone)
            self._delete(root, name, noted)

    def _delete(self, root: int, name: str, noted: Noted) -> None:
        """Move it away in one step, so that nobody finds half of it; then delete it."""
        with _explained(name), opened(root, OURS) as ours:
            make_directory(ours, TRASH, 0o700)
            with opened(ours, TRASH) as trash:
                with suppress(FileNotFoundError, FileExistsError):
                    # As its tenant may have made it, the kernel would not move it.
                    unlock_beneath(root, name)
                    rename_new(root, name, trash, noted.id)
                sync_directory(root)
            with suppress(FileNotFoundError):
                delete_directory(
                    ours,
                    TRASH,
                    noted.id,
                    overwrite=noted.tags.get(TAG_ON_REMOVAL) == "overwrite",
                    stop=threading.Event(),
                )
            with opened(ours, RECORDS) as records, suppress(FileNotFoundError):
                os.unlink(name + _SUFFIX, dir_fd=records)
                sync_directory(records)

    # --- elastic's -----------------------------------------------------------------------------

    def unmarked(self) -> list[str]:
        with self._opened() as root:
            marked = set(_recorded(root))
            with _explained("of elastic's driver"):
                names = [name for name in list_names(root) if name not in marked]
                return sorted(
                    name for name in names if _is_name(name) and _is_directory(root, name)
                )

    def adopt(self, volumes: Mapping[str, Mapping[str, str]]) -> list[str]:
        adopted = []
        with self._opened() as root:
            for name, tags in volumes.items():
                if not _is_there(root, name) or _read(root, name) is not None:
                    continue
                kept = {key: value for key, value in tags.items() if value}
                noted = Noted(id=secrets.token_hex(8), size_bytes=0, tags={**kept, TAG_STATE: MADE})
                _write(root, name, noted)
                adopted.append(name)
        return adopted

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            fd = os.open(self._root, _PLACE)
        except OSError as error:
            raise DriverFailed(
                f"the directory of the volumes, {self._root}: {error.strerror}"
            ) from error
        try:
            yield fd
        finally:
            os.close(fd)


# --- records -----------------------------------------------------------------------------------


def _read(root: int, name: str) -> Noted | None:
    """The record, None if there is none; DriverFailed if it cannot be read."""
    try:
        check_name(name)
        with opened(root, f"{OURS}/{RECORDS}") as records:
            return _decode(read_file(records, name + _SUFFIX, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except (Refused, OSError, ValueError) as error:
        raise DriverFailed(f"the record of the volume {name} cannot be read: {error}") from error


def _write(root: int, name: str, noted: Noted) -> None:
    """Write the record, whole and synced. Raises DriverFailed."""
    with _explained(name):
        make_directory(root, OURS, 0o700)
        with opened(root, OURS) as ours:
            make_directory(ours, RECORDS, 0o700)
            with opened(ours, RECORDS) as records:
                temporary = stage_file(records, msgspec.json.encode(noted))
                put_staged(records, temporary, name + _SUFFIX)
                sync_directory(records)
            sync_directory(ours)
        sync_directory(root)


def _recorded(root: int) -> list[str]:
    """The names of all volumes with a record. Raises DriverFailed."""
    try:
        with opened(root, f"{OURS}/{RECORDS}") as records:
            return sorted(
                name.removesuffix(_SUFFIX)
                for name in list_names(records)
                if name.endswith(_SUFFIX) and not name.startswith(TEMPORARY)
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DriverFailed(f"the records of the volumes cannot be read: {error}") from error


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except Refused:
        return False
    return True


# --- directories and mounts --------------------------------------------------------------------


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, BackendFailed, LeadsOutside) as error:
        raise DriverFailed(f"the volume {name}: {error}") from error


def _is_there(root: int, name: str) -> bool:
    """Whether there is a directory of that name; DriverFailed if there is something else."""
    try:
        mode = os.stat(name, dir_fd=root, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DriverFailed(f"the volume {name}: {error}") from error
    if not stat.S_ISDIR(mode):
        raise DriverFailed(f"where the volume {name} should be is no directory: left as it is")
    return True


def _is_directory(root: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode)


def _options(volume: Volume) -> frozenset[str]:
    """The options of the bind mount; DriverFailed for what a directory cannot have."""
    if volume.mkfs_options:
        raise DriverFailed("driver bindmount makes no filesystem: it takes no options of mkfs")
    wanted = frozenset(volume.mount_options) - {"rw", "ro", "defaults"}
    if unknown := wanted - binding.FLAGS.keys():
        raise DriverFailed(f"driver bindmount cannot mount with {', '.join(sorted(unknown))}")
    return wanted


def _mount_at(fd: int, volume: Volume, options: frozenset[str], target: str) -> None:
    table = read_mount_table()
    found = table.at(target)
    if found is None and not table.settled:
        raise DriverFailed("the mounts of this node keep changing: ask again")
    if found is not None and not os.path.samestat(os.stat(target), os.fstat(fd)):
        raise DriverFailed(f"something else is mounted at {target} already: {found.source}")
    if found is None:
        binding.bind(fd, target)
        found = read_mount_table().at(target)
    read_only = volume.read_only or "ro" in volume.mount_options
    if found is None or options or ("ro" in found.options.split(",")) != read_only:
        binding.set_options(target, options, read_only=read_only)
