"""LVM's commands, typed: look at, make, grow and remove volume groups and logical volumes.

Each method runs one command, so LVM commits it as a whole or not at all. `recover` puts right what
a killed command leaves in the kernel (``recovery`` says what that is). Call it for each group when
the agent starts, as the previous agent may have been killed, and after LvmUnfinished, before doing
anything else in the group. Everything blocks; use it in workers (``commandsync.Run``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

from localvolume.host.lvm import devicefilter, report
from localvolume.host.lvm.errors import (
    BadName,
    GroupMissing,
    HasSnapshots,
    LvmFailed,
    LvmUnfinished,
    NameTaken,
    NoSpaceInGroup,
    VolumeInUse,
    VolumeMissing,
    failed,
    missing,
)
from localvolume.host.lvm.recovery import Recovery
from localvolume.host.lvm.report import BadReport, LogicalVolume, VolumeGroup
from localvolume.host.process.commands import CommandMissing, CommandTimedOut
from localvolume.host.process.commandsync import OUTPUT_LIMIT, Run

_NAME: Final = re.compile(r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,126}")
# lvm(8), "Valid names".
_RESERVED: Final = re.compile(
    r"\.|\.\.|(snapshot|pvmove).*"
    r"|.*_(cdata|cmeta|corig|mlog|mimage|rimage|rmeta|tdata|tmeta|vdata|vorigin|pmspare|imeta).*"
)
_LONGEST_BOTH: Final = 118


def check_name(name: str) -> str:
    """Return the name if a group or volume may have it; raises BadName."""
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise BadName(f"{name[:140]!r} is no name of a volume group or logical volume")
    return name


def check_names(group: str, name: str) -> None:
    """Check both names, and that LVM can make such a volume; raises BadName.

    The kernel's name joins both, with each "-" doubled, and the suffix of a hidden part.
    """
    length = sum(len(check_name(word)) + word.count("-") for word in (group, name))
    if length > _LONGEST_BOTH:
        raise BadName(f"{group}/{name[:140]} is too long for a volume: at most {_LONGEST_BOTH}")


def device_path(group: str, name: str) -> str:
    """The path of an active volume's device."""
    return f"/dev/{check_name(group)}/{check_name(name)}"


LOOK_SECONDS: Final = 30.0
CHANGE_SECONDS: Final = 60.0
"""How long a command may take before it is ended and counts as failed."""
REPORT_BYTES: Final = 64 << 20
"""How long a report may be: one volume takes about 1.5 KiB."""
DELTA_BYTES: Final = 16 << 20
"""How long thin_delta's answer may be: a range takes 40 bytes or so."""

# Errors are read from stderr. LVM of 2025 writes them into its report unless told otherwise.
_TOLD: Final = "log{report_command_log=0}"
# udev's semaphores and database are on the host: in a container, LVM makes the nodes itself.
_ALONE: Final = "activation{udev_sync=0 udev_rules=0 verify_udev_operations=0}"
# Warnings about each file that the caller has open are of no use.
_ENVIRONMENT: Final = {"LC_ALL": "C", "LVM_SUPPRESS_FD_WARNINGS": "1"}
_BY_SIGNAL: Final = 128
"""A shell, or a prefix, exits with a status above this if a signal ended its child."""
_PLACES: Final = "lv_name,seg_pe_ranges"
_PLACE: Final = re.compile(r"/dev/.*:[0-9]+-[0-9]+")
_BIG_ENOUGH: Final = re.compile(r"matches existing size|not larger than existing|No size change")


class Lvm:
    """`prefix` goes before every command, to use the host's own LVM (nsenter ...). `discovery`: the
    directories whose devices tenants are given, which LVM is not shown (``devicefilter``).

    All methods raise LvmFailed (or a subclass), BadReport, and OSError. Sizes are bytes; LVM rounds
    up to whole extents, and the caller learns the size by looking again. A command that changes
    something may take `change_seconds`.
    """

    def __init__(
        self,
        run: Run,
        prefix: Sequence[str] = (),
        change_seconds: float = CHANGE_SECONDS,
        *,
        discovery: Sequence[str] = (),
    ) -> None:
        self._run = run
        self._change_seconds = change_seconds
        self._prefix = tuple(prefix)
        self._discovery = tuple(discovery)
        self._filter = ""

    # --- looking -------------------------------------------------------------------------------

    def groups(self) -> list[VolumeGroup]:
        """All volume groups of this node."""
        return report.read_groups(self._report("vgs", report.GROUP_FIELDS))

    def group(self, name: str) -> VolumeGroup:
        """The volume group of that name; raises GroupMissing."""
        text = self._report("vgs", report.GROUP_FIELDS, check_name(name))
        for found in report.read_groups(text):
            if found.name == name:
                return found
        raise GroupMissing(f"volume group {name} is not among what LVM reports")

    def volumes(self, group: str) -> list[LogicalVolume]:
        """All logical volumes of a group; raises GroupMissing."""
        text = self._report("lvs", report.VOLUME_FIELDS, check_name(group))
        return report.read_volumes(text)

    def whole(self, name: str) -> tuple[VolumeGroup, list[LogicalVolume]]:
        """A volume group and all its logical volumes at one moment; raises GroupMissing."""
        text = self._told("fullreport", *report.WHOLE, check_name(name))
        for group, volumes in report.read_whole(text):
            if group.name == name:
                return group, volumes
        raise GroupMissing(f"volume group {name} is not among what LVM reports")

    def volume(self, group: str, name: str) -> LogicalVolume | None:
        """The logical volume of that name, or None; raises GroupMissing."""
        check_name(name)
        return next((one for one in self.volumes(group) if one.name == name), None)

    def places(self, volume: LogicalVolume) -> list[str]:
        """A volume's extents as `<physical volume>:<first>-<last>`. Raises BadReport, LvmFailed."""
        text = self._report("lvs", _PLACES, "--segments", volume.full_name)
        rows = report.rows(text, "seg")
        places = [place for row in rows for place in row.get("seg_pe_ranges", "").split()]
        if not places or not all(map(_PLACE.fullmatch, places)):
            raise BadReport(f"LVM does not say where {volume.full_name} lies")
        return places

    # --- making --------------------------------------------------------------------------------

    def create(
        self,
        group: str,
        name: str,
        size_bytes: int,
        *,
        thin_pool: str = "",
        tags: Iterable[str] = (),
        stripes: int = 0,
        stripe_bytes: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        """Make and activate a volume, thin if a pool is named; wipe signatures of older ones.

        Raises NameTaken, NoSpaceInGroup, GroupMissing.
        """
        check_names(group, name)
        argv = ["lvcreate", "--name", name, "--wipesignatures", "y", "--yes"]
        if thin_pool:
            where = f"{check_name(group)}/{check_name(thin_pool)}"
            argv += ["--thin", "--virtualsize", sized(size_bytes)]
        else:
            where = check_name(group)
            argv += ["--size", sized(size_bytes), "--zero", "y"]
            if stripes:
                argv += ["--stripes", str(stripes)]
            if stripe_bytes:
                argv += ["--stripesize", f"{stripe_bytes}b"]
        self._change([*argv, *_tagged("--addtag", tags), *options, where])

    def create_pool(
        self, group: str, name: str, size_bytes: int | None, *, tags: Iterable[str] = ()
    ) -> None:
        """Make a thin pool that zeroes what it hands out; size None takes all the free space.

        This is not one change: if killed, it may leave an empty thick volume of that name, with
        the tags.
        """
        check_names(group, name)
        size = ["--extents", "100%FREE"] if size_bytes is None else ["--size", sized(size_bytes)]
        argv = ["lvcreate", "--type", "thin-pool", "--name", name, "--zero", "y"]
        self._change([*argv, *size, "--yes", *_tagged("--addtag", tags), check_name(group)])

    def snapshot(
        self,
        group: str,
        origin: str,
        name: str,
        *,
        active: bool,
        tags: Iterable[str] = (),
    ) -> None:
        """Make a thin snapshot of a thin volume as it is now, a volume of its own.

        One that is not `active` has no device, and a host that activates all its volumes leaves it
        so. Raises NameTaken, VolumeMissing.
        """
        check_names(group, name)
        skip = "n" if active else "y"
        argv = ["lvcreate", "--snapshot", "--name", name, "--yes", "--setactivationskip", skip]
        where = f"{check_name(group)}/{check_name(origin)}"
        self._change([*argv, *_tagged("--addtag", tags), where])

    def cut(
        self, group: str, origin: str, name: str, size_bytes: int, tags: Iterable[str] = ()
    ) -> None:
        """Make a classic snapshot of an active thick volume as it is now, to be read only.

        It is lost once more than `size_bytes` of the volume were written to. Raises NameTaken,
        NoSpaceInGroup, VolumeMissing.
        """
        check_names(group, name)
        argv = ["lvcreate", "--snapshot", "--name", name, "--yes", "--permission", "r"]
        where = f"{check_name(group)}/{check_name(origin)}"
        self._change([*argv, "--size", sized(size_bytes), *_tagged("--addtag", tags), where])

    def mapped_bytes(self, volume: LogicalVolume) -> int:
        """How many bytes of its pool an active thin volume uses. Raises LvmFailed, BadReport."""
        group, name = (word.replace("-", "--") for word in (volume.group, volume.name))
        told = self._dmsetup(["status", "--target", "thin", f"{group}-{name}"])
        words = told.split()
        # "<start> <length> thin <mapped sectors> <highest mapped sector>", or "thin Fail".
        if len(words) < 4 or words[2] != "thin" or not words[3].isdigit():
            raise BadReport(f"what {volume.full_name} has of its pool: {told.strip() or 'nothing'}")
        return int(words[3]) * 512

    # --- changing ------------------------------------------------------------------------------

    def extend(self, volume: LogicalVolume, size_bytes: int) -> None:
        """Grow a volume to that many bytes, whatever it holds; leave it if it has as many already.

        The filesystem in it is not touched. Raises NoSpaceInGroup, VolumeMissing, HasSnapshots
        (an active volume with classic snapshots cannot grow).
        """
        if size_bytes <= volume.size_bytes:
            return
        try:
            self._change(["lvextend", "--size", sized(size_bytes), "--yes", volume.full_name])
        except LvmFailed as error:
            if not _BIG_ENOUGH.search(str(error)):  # it grew since the caller looked
                raise

    def extend_onto(self, volume: LogicalVolume, size_bytes: int, places: Sequence[str]) -> None:
        """Grow a volume to that many bytes, taking the new ones from these extents only.

        Raises NoSpaceInGroup if the extents are no longer free.
        """
        self._change(["lvextend", "--size", sized(size_bytes), "--yes", volume.full_name, *places])

    def retag(self, volume: LogicalVolume, remove: Collection[str], add: Collection[str]) -> None:
        """Change a volume's tags, all at once."""
        if remove or add:
            tags = [*_tagged("--deltag", remove), *_tagged("--addtag", add)]
            self._change(["lvchange", *tags, volume.full_name])

    def activate(self, volume: LogicalVolume) -> None:
        """Make the volume's device appear; harmless if it is active already."""
        argv = ["lvchange", "--activate", "y", "--ignoreactivationskip", "--yes"]
        self._change([*argv, volume.full_name])

    def deactivate(self, volume: LogicalVolume) -> None:
        """Remove the volume's device: LVM thus proves that nobody uses it. Raises VolumeInUse.

        A thin pool stays active, without an error, while volumes in it are. Classic snapshots are
        deactivated with their origin.
        """
        self._change(["lvchange", "--activate", "n", "--yes", volume.full_name])

    def keep_inactive(self, volume: LogicalVolume) -> None:
        """Have a host that activates all its volumes leave this one as it is."""
        self._change(["lvchange", "--setactivationskip", "y", volume.full_name])

    def refresh(self, volume: LogicalVolume) -> None:
        """Load what is on record into the kernel and resume I/O, after a killed command."""
        self._change(["lvchange", "--refresh", volume.full_name])

    def remove(self, volume: LogicalVolume, *, keep_blocks: bool = False) -> None:
        """Remove a volume and its content for good; harmless if it is gone. Raises VolumeInUse.

        With `keep_blocks`, the content of its blocks is not discarded, whatever the host's LVM is
        configured to do with the blocks of removed volumes (`issue_discards`).

        The volume is selected by UUID: never another one that got its name. Raises HasSnapshots,
        because LVM would remove those along with it and not ask.
        """
        exactly = f"lv_uuid={volume.uuid} && lv_role!={{thickorigin}}"
        argv = ["lvremove", "--yes", "--select", exactly, check_name(volume.group)]
        told = self._change(argv, "issue_discards=0" if keep_blocks else "")
        if "successfully removed" in told:
            return
        left = next((one for one in self.volumes(volume.group) if one.uuid == volume.uuid), None)
        if left is not None and left.has_snapshots:
            raise HasSnapshots(f"{volume.full_name} has snapshots, which would be removed with it")
        if left is not None:
            raise LvmFailed(f"lvremove left {volume.full_name} without a word")

    def recover(self, group: str) -> tuple[str, ...]:
        """Put right what killed commands left in this group; return what was done, in words.

        None of our other commands may run in the group meanwhile. Raises GroupMissing.
        """
        check_name(group)
        lvm = partial(self._lvm, seconds=self._change_seconds, most=REPORT_BYTES)
        return Recovery(lvm, self._dmsetup, group).run()

    # --- running -------------------------------------------------------------------------------

    def _report(self, command: str, fields: str, *what: str) -> str:
        return self._told(command, "--options", fields, *what)

    def _told(self, command: str, *arguments: str) -> str:
        how = ("--reportformat", "json", "--units", "b", "--nosuffix")
        return self._lvm([command, *how, *arguments], LOOK_SECONDS, REPORT_BYTES)

    def _change(self, argv: Sequence[str], of_devices: str = "") -> str:
        return self._lvm(argv, self._change_seconds, OUTPUT_LIMIT, of_devices)

    def _dmsetup(self, argv: Sequence[str]) -> str:
        alone = () if self._prefix else ("--noudevsync", "--noudevrules")
        return self._command(
            "dmsetup", ["dmsetup", *alone, *argv], self._change_seconds, REPORT_BYTES
        )

    def _lvm(self, argv: Sequence[str], seconds: float, most: int, of_devices: str = "") -> str:
        """`of_devices` adds settings to the section "devices" of LVM's configuration."""
        command, *arguments = argv
        blocks = devicefilter.blocks()
        hidden = devicefilter.hidden(blocks, devicefilter.given(self._discovery))
        seen = devicefilter.shown(blocks, hidden)
        sight = devicefilter.accepting(seen, self._free_filter(), of_devices)
        config = f"{_TOLD} {sight}" if self._prefix else f"{_TOLD} {_ALONE} {sight}"
        try:
            return self._command(
                command, ["lvm", command, "--config", config, *arguments], seconds, most
            )
        except GroupMissing as error:
            if not (told := devicefilter.explained(hidden)):
                raise
            raise GroupMissing(f"{error} ({told})") from error

    def _free_filter(self) -> str:
        """Which of LVM's filters we may use; asked once per object."""
        if not self._filter:
            told = self._command("lvmconfig", ["lvm", "lvmconfig"], LOOK_SECONDS, REPORT_BYTES)
            self._filter = devicefilter.free_filter(told)
        if not self._filter:
            raise LvmFailed(
                "LVM's configuration has both devices/filter and devices/global_filter, so that"
                " tenants' devices cannot be kept from it: make one filter of them"
            )
        return self._filter

    def _command(self, command: str, argv: Sequence[str], seconds: float, most: int) -> str:
        whole = (*self._prefix, *argv)
        try:
            finished = self._run(whole, seconds, output_limit=most, env=_ENVIRONMENT)
        except CommandMissing as error:
            raise missing(command, str(error)) from error
        except (CommandTimedOut, TimeoutError, ChildProcessError) as error:
            # The last two: it may still be running, or nobody knows how it ended.
            raise LvmUnfinished(f"{command}: {error}") from error
        if finished.returncode < 0 or finished.returncode > _BY_SIGNAL:
            raise LvmUnfinished(f"{command}: ended by a signal ({finished.returncode})")
        if finished.returncode:
            raise failed(command, finished.returncode, finished.stderr or finished.stdout)
        if finished.truncated and most > OUTPUT_LIMIT:
            raise BadReport(f"{command} reports more than {most} bytes")
        return finished.stdout


def sized(size_bytes: int) -> str:
    """The size as lvcreate accepts it: it rounds whole sectors up to extents, and refuses parts."""
    return f"{-(-size_bytes // 512) * 512}b"


def _tagged(option: str, tags: Iterable[str]) -> list[str]:
    return [word for tag in sorted(tags) for word in (option, tag)]


__all__ = [
    "BadName",
    "BadReport",
    "GroupMissing",
    "HasSnapshots",
    "LogicalVolume",
    "Lvm",
    "LvmFailed",
    "LvmUnfinished",
    "NameTaken",
    "NoSpaceInGroup",
    "VolumeGroup",
    "VolumeInUse",
    "VolumeMissing",
    "check_name",
    "device_path",
]
