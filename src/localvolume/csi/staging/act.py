"""Mounts volumes at the kubelet's paths, each in one step that a repeated call completes.

A mount gets all its options before anybody sees it. So after a crash a volume is mounted as it was
asked for, or not at all; what may be left is an empty directory or file to mount it on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from localvolume.backends.held import held_in
from localvolume.backends.model import NotThisVolume, Source
from localvolume.csi.staging import options, places, plan
from localvolume.csi.staging.options import Options
from localvolume.csi.staging.places import Place, place_at
from localvolume.csi.wire.errors import FailedPrecondition, NotFound, Unavailable
from localvolume.host.mount.detached import clone_mount, open_mount, put_mount
from localvolume.host.mount.mounts import Mount, MountTable
from localvolume.host.syscalls import closed_after, mount_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a call asks for: how the volume is used (`mode` is the access mode's name)."""

    block: bool
    mode: str
    flags: Sequence[str] = ()
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Paths:
    """Which paths may be the kubelet's: not those in `ours`, directories of our own sockets.

    Targets below `kubelet` are compared with others there, all else with every mount.
    """

    kubelet: str
    ours: Sequence[str] = ()

    def within(self, path: str) -> str:
        return self.kubelet if path.startswith(f"{self.kubelet}/") else "/"


def stage(source: Source, asked: Asked, path: str, paths: Paths) -> None:
    """Mount the volume at its staging path; a raw block device is only checked.

    Raises CallFailed, NotThisVolume, OSError.
    """
    with _place(path, paths) as place:
        if asked.block:
            return

        def check() -> None:
            try:
                places.check_empty(place, directory=True)
            except FileNotFoundError:
                raise FailedPrecondition(f"there is no directory {path}") from None

        _mount(source, asked, place, check)


def publish_unstaged(source: Source, asked: Asked, path: str, paths: Paths) -> None:
    """Mount a pod's own volume at its target, which is made: it has no staging path.

    Raises as `stage` does.
    """
    with _place(path, paths) as place:
        _mount(source, asked, place, lambda: places.make_target(place, directory=True))


def _mount(source: Source, asked: Asked, place: Place, prepare: Callable[[], None]) -> None:
    """Give the volume a mount of its own, unless it is there; `prepare` sees to the directory."""
    wanted = options.read(asked.flags, source.fs_type, read_only=asked.read_only)
    table = places.mount_table()
    held = held_in(table, source)
    if source.fs_type:
        shown = options.of_device(wanted)
    else:
        shown = options.on_top_of(_mount_of(table, source.fd), wanted)
    if not plan.to_stage(table.at(place.path), place.path, held, shown, source.fs_type):
        return
    prepare()
    with closed_after(_new_mount(source, wanted)) as made:
        _put(made, place)
    # A filesystem that is mounted elsewhere too has the options that it has there.
    table = places.mount_table()
    if plan.to_stage(table.at(place.path), place.path, held, shown, source.fs_type):
        raise Unavailable(f"the volume was mounted at {place.path}, and is not any more")


def publish(source: Source, asked: Asked, staging: str, path: str, paths: Paths) -> None:
    """Mount the volume at its target, which is made. Raises as `stage` does."""
    with _place(staging, paths) as below, _place(path, paths) as place:
        table = places.mount_table()
        held = held_in(table, source)
        wanted = options.read(asked.flags, source.fs_type, read_only=asked.read_only)
        cleared = wanted.cleared
        if asked.block:
            origin = _mount_of(table, source.fd)
            shown = options.without_nodev(options.on_top_of(origin, wanted))
            cleared |= options.NODEV
        else:
            origin = plan.staged(table.at(below.path), below.path, held)
            shown = options.on_top_of(origin, wanted)
        if not plan.to_publish(table.at(place.path), place.path, held, shown):
            return
        here = (place.path, below.path)
        plan.check_alone(table, held, asked.mode, here, paths.within(place.path))
        places.make_target(place, directory=not asked.block)
        with (
            _opened(source, below, asked, origin) as fd,
            closed_after(clone_mount(fd, path, wanted.attributes, cleared)) as made,
        ):
            _put(made, place)


def unstage(path: str, paths: Paths) -> None:
    """Unmount what is mounted at a staging path, which stays. Raises CallFailed, OSError."""
    try:
        with place_at(path, paths.ours) as place:
            places.unmount_all(place)
    except FileNotFoundError:
        return


def unpublish(path: str, paths: Paths) -> None:
    """Unmount what is mounted at a target, and remove that. Raises CallFailed, OSError."""
    try:
        with place_at(path, paths.ours) as place:
            places.unmount_all(place)
            places.remove_target(place)
    except FileNotFoundError:
        return


def mounted_at(source: Source, path: str, paths: Paths) -> int:
    """Open the volume where it is mounted (O_PATH). Raises NotFound if it is not at that path."""
    absent = NotFound(f"the volume is not mounted at {path}")
    if places.fault_of(path):
        raise absent
    try:
        with place_at(path, paths.ours) as place:
            table = places.mount_table()
            found = table.at(place.path)
            if not plan.is_at(found, held_in(table, source)):
                raise absent
            return place.open()
    except FileNotFoundError:
        raise absent from None


def _new_mount(source: Source, wanted: Options) -> int:
    """The volume's own mount, which nobody sees yet. Raises NotThisVolume, OSError."""
    if not source.fs_type:
        return clone_mount(source.fd, source.record.name, wanted.attributes, wanted.cleared)
    with ExitStack() as undo:
        made = open_mount(source.device, source.fs_type, wanted.attributes, wanted.asked)
        undo.callback(os.close, made)
        if os.stat(".", dir_fd=made).st_dev != os.fstat(source.fd).st_rdev:
            raise NotThisVolume(f"{source.device} is another device by now")
        undo.pop_all()
    return made


def _put(made: int, place: Place) -> None:
    with closed_after(place.open()) as target:
        put_mount(made, target, place.path)


@contextmanager
def _opened(source: Source, below: Place, asked: Asked, origin: Mount) -> Iterator[int]:
    """What is mounted at a target: the device, or the root of the staging mount `origin`."""
    if asked.block:
        yield source.fd
        return
    with closed_after(below.open()) as root:
        if mount_id(root) != origin.mount_id:
            raise Unavailable(f"{below.path} was mounted anew meanwhile")
        yield root


@contextmanager
def _place(path: str, paths: Paths) -> Iterator[Place]:
    with ExitStack() as stack:
        try:
            place = stack.enter_context(place_at(path, paths.ours))
        except FileNotFoundError:
            raise FailedPrecondition(f"there is no directory {os.path.dirname(path)}") from None
        yield place


def _mount_of(table: MountTable, fd: int) -> Mount:
    number = mount_id(fd)
    found = next((mount for mount in table if mount.mount_id == number), None)
    if found is None:
        raise Unavailable("the mounts of this node have just changed: ask again")
    return found
