"""What a killed LVM command leaves in the kernel, and how it is put right.

LVM's metadata is whole at any moment: a command is committed or not. The kernel's devices are not.
The states below were found by killing commands at random moments (making, growing and removing
thick and thin volumes) and, with strace (`inject=ioctl:signal=KILL`), before each call to the
kernel that making or removing a classic snapshot takes, and most that making a thin one takes.
Others may exist: what this cannot put right is raised, and nothing is removed that a volume may be
read from.

- A device has a second table loaded, or is suspended: I/O to it waits forever, and whatever opens
  it hangs. The second table is dropped (its state may never have been committed), the device is
  resumed, and LVM is told to load what is on record (`lvchange --refresh`).
- A device has no table: nobody can have it open. It is removed.
- Nothing uses a hidden part (`_tdata`, `_tmeta`, `-tpool`, `-real`, `-cow`) any more. LVM then
  refuses to activate the whole ("prohibited while logical volume ... is active"), so a thin pool
  would stay inactive for good. The part is removed, and LVM makes it again when needed.
- A device is smaller than its volume on record. It is refreshed. So are the origin and the devices
  of a classic snapshot whose removal was killed between its two commits, in any order that works.
- No path in /dev leads to an active device, where LVM makes the paths itself (there is no udev, or
  none that it waits for). Refreshing makes the path (so does `vgmknodes`, but it fails).
- A thin pool is one transaction behind LVM's record of it. LVM sends the message again with the
  next change. But if the kernel has already made the volume, it refuses ("already contain thin
  device", "Manual intervention may be required"), and no volume of the pool can be made or removed
  any more. The one thing missing, the pool's new transaction number, is sent.
- LVM still has messages to a thin pool on record, whether or not the kernel got them. Commands that
  only reload tables (grow, refresh, activate) send them and leave them on record. Meanwhile,
  removing another volume adds its message without a new transaction number. The kernel already has
  that number, so it never gets the message: the volume stays in the pool with its data, and LVM
  gives its number to a later one. Only making a thin volume clears messages first, so one is made
  and removed. If the kernel had not made a volume before, it has then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localvolume.host.lvm.errors import LvmFailed, LvmUnfinished
from localvolume.host.lvm.report import BadReport, field, number, rows

Do = Callable[[Sequence[str]], str]
"""Runs one command (argv without `lvm`, or one of dmsetup) and returns what it says."""

_DEVICE_FIELDS: Final = "name,uuid,suspended,tables_loaded,open"
_HIDDEN: Final = frozenset({"tdata", "tmeta", "tpool", "real", "cow"})
_SETTLE_SECONDS: Final = 0.3
_MESSENGER: Final = "localvolume-recovery"
"""The thin volume that is made to clear a pool's messages."""
_MESSENGER_TAG: Final = "localvolume.dev/owner=recovery"

PART_FIELDS: Final = (
    "lv_name,lv_parent,lv_uuid,lv_path,lv_size,lv_layout,lv_role,lv_active,pool_lv,transaction_id,"
    "lv_kernel_major,lv_kernel_minor"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A logical volume, hidden or not (the brackets around a hidden one's name are left out).

    `parent` is the name of the volume that a hidden part belongs to, or "". `path` leads to its
    device, "" if it is not meant to be opened. `size_bytes` of a classic snapshot is its own room;
    its device is as large as its origin. `device_bytes` is the size of its device in the kernel, 0
    while it is not active. `pool_transaction`, for a thin pool: the number of its last change.
    `made_in_transaction`, for a thin volume: the pool's number before it was made.
    """

    name: str
    parent: str
    uuid: str
    path: str
    size_bytes: int
    active: bool
    classic_snapshot: bool
    device_bytes: int
    pool: str
    pool_transaction: int | None
    made_in_transaction: int | None

    @property
    def short(self) -> bool:
        """Whether its device in the kernel is smaller than the size on record."""
        return 0 < self.device_bytes < self.size_bytes and not self.classic_snapshot

    @property
    def unreachable(self) -> bool:
        """Whether it is active but its path leads nowhere."""
        return self.active and bool(self.path) and not os.path.exists(self.path)


def read_parts(text: str) -> list[Part]:
    """Read what `lvs --all` reports for PART_FIELDS. Raises BadReport."""
    found: dict[str, Part] = {}
    for row in rows(text, "lv"):
        part = _part(row)
        found.setdefault(part.uuid, part)
    return list(found.values())


def pools_with_messages(text: str) -> list[str]:
    """The thin pools that LVM has messages for in its metadata (`pvck --dump metadata`).

    Raises BadReport if the text is not the metadata of a group with volumes.
    """
    found: dict[str, None] = {}
    volumes = False
    path: list[str] = []
    for line in text.splitlines():
        if line.endswith("{"):
            path.append(line.removesuffix("{").strip())
            volumes = volumes or path[1:] == ["logical_volumes"]
            # <group>, logical_volumes, <pool>, segment1, message1
            if path[1:2] == ["logical_volumes"] and path[4:] and path[4].startswith("message"):
                found[path[2]] = None
        elif line.strip() == "}" and path:
            path.pop()
    if not volumes:
        raise BadReport(f"no metadata of logical volumes: {text[:200]!r}")
    return list(found)


def _part(row: dict[str, str]) -> Part:
    said = row.get("transaction_id", "")
    transaction = int(said) if said.isascii() and said.isdigit() else None
    is_pool = {"thin", "pool"} <= set(row.get("lv_layout", "").split(","))
    return Part(
        name=field(row, "lv_name").strip("[]"),
        parent=row.get("lv_parent", "").strip("[]"),
        uuid=field(row, "lv_uuid"),
        path=row.get("lv_path", ""),
        size_bytes=number(row, "lv_size"),
        active=row.get("lv_active", "") == "active",
        classic_snapshot="thicksnapshot" in row.get("lv_role", "").split(","),
        device_bytes=_device_bytes(row),
        pool=row.get("pool_lv", "").strip("[]"),
        pool_transaction=transaction if is_pool else None,
        made_in_transaction=None if is_pool else transaction,
    )


def _device_bytes(row: dict[str, str]) -> int:
    major, minor = row.get("lv_kernel_major", "-1"), row.get("lv_kernel_minor", "-1")
    try:
        sectors = Path(f"/sys/dev/block/{int(major)}:{int(minor)}/size").read_text()
        return int(sectors) * 512
    except (OSError, ValueError):
        return 0


@dataclass(frozen=True, slots=True)
class Device:
    """A device-mapper device of LVM's; `layer` is "" for the volume itself."""

    name: str
    group_uuid: str
    volume_uuid: str
    layer: str
    suspended: bool
    tables: str
    open: int

    @property
    def half(self) -> bool:
        """Whether a killed command may have left it so; a running one passes through this, too."""
        idle_part = self.layer in _HIDDEN and not self.open
        return self.suspended or self.tables != "Live" or idle_part


class Recovery:
    """Puts one group right. `lvm` and `dmsetup` run those commands; both raise LvmFailed."""

    def __init__(self, lvm: Do, dmsetup: Do, group: str) -> None:
        self._lvm = lvm
        self._dmsetup = dmsetup
        self._group = group
        self.done: list[str] = []

    def devices(self) -> list[Device]:
        """LVM's devices in the kernel, of any group."""
        told = self._dmsetup(
            ["info", "--columns", "--noheadings", "--separator", "/", "-o", _DEVICE_FIELDS]
        )
        return list(read_devices(told.splitlines()))

    def run(self) -> tuple[str, ...]:
        """Put everything right; return what was done, in words, for a log.

        Raises what cannot be put right after all else has been.
        """
        changed: set[str] = set()
        if any(device.half for device in self.devices()):
            changed = self._settle_all()
        parts = self._parts()
        # Before anything is reloaded: with that, LVM sends the messages that a pool has not got.
        pools = [one for one in parts if one.pool_transaction is not None]
        for pool in pools:
            self._finish_transaction(pool, parts)
        if pools and self._clear_messages(parts):
            parts = self._parts()
        touched = [one for one in parts if one.uuid.replace("-", "") in changed]
        wrong = [one for one in parts if one.short or one.unreachable or one in touched]
        # LVM refreshes a hidden part only with its whole ("Operation not permitted on hidden LV").
        wholes = {_whole(one, parts).name for one in wrong}
        self._refresh([one for one in parts if one.name in wholes])
        return tuple(self.done)

    def _refresh(self, parts: Sequence[Part]) -> None:
        """Load what is on record; repeat while that helps, as one may hold what another needs."""
        left = [part for part in parts if part.active]
        while left:
            failed = []
            for part in left:
                try:
                    self._lvm(["lvchange", "--refresh", f"{self._group}/{part.name}"])
                except LvmFailed as error:
                    failed.append((part, error))
                else:
                    self.done.append(f"refreshed {part.name}")
            if len(failed) == len(left):
                raise failed[0][1]
            left = [part for part, _ in failed]

    def _settle_all(self) -> set[str]:
        """Resume all I/O with the tables there are; return the UUIDs of the volumes concerned."""
        before = set(self._halves())
        # A command that changes the group holds its lock, and looking waits for that lock. States
        # that a running command was only passing through are gone at the second look.
        time.sleep(_SETTLE_SECONDS)
        changed = set()
        for device in self._halves():
            if device in before and (device.suspended or device.tables != "Live"):
                self._settle(device)
                changed.add(device.volume_uuid)
        for _ in range(len(_HIDDEN)):  # one part may hold another
            idle = [one for one in self._halves() if one.layer in _HIDDEN and not one.open]
            for device in idle:
                self._try(["remove", device.name], f"removed the idle {device.name}")
            if not idle:
                break
        return changed

    def _halves(self) -> list[Device]:
        told = self._lvm(["vgs", "--noheadings", "--options", "vg_uuid", self._group])
        uuid = told.strip().replace("-", "")
        return [one for one in self.devices() if one.group_uuid == uuid and one.half]

    def _settle(self, device: Device) -> None:
        if device.tables in ("None", "Inactive"):
            self._try(["remove", device.name], f"removed the empty {device.name}")
            return
        if device.tables == "Both":
            self._try(["clear", device.name], f"dropped the second table of {device.name}")
        if device.suspended:
            self._try(["resume", device.name], f"resumed {device.name}")

    def _finish_transaction(self, pool: Part, parts: Sequence[Part]) -> None:
        """If the kernel has made what LVM waits for, send the pool its new transaction number."""
        behind = self._kernel_transaction(pool)
        if behind is None or behind + 1 != pool.pool_transaction:
            return
        for part in parts:
            if part.pool != pool.name or part.made_in_transaction != behind:
                continue
            try:
                self._lvm(["lvchange", "--activate", "y", "-K", "-y", f"{self._group}/{part.name}"])
            except LvmUnfinished:
                raise
            except LvmFailed:
                continue  # it is not made: the message is still to be sent
            number = f"set_transaction_id {behind} {pool.pool_transaction}"
            self._dmsetup(["message", self._device(pool), "0", number])
            self.done.append(f"finished the making of {part.name} in {pool.name}")

    def _clear_messages(self, parts: Sequence[Part]) -> bool:
        """Have LVM send and clear its messages to thin pools; return whether there were any."""
        # The messenger of a killed recovery goes, too.
        waiting = {part.pool: None for part in parts if part.pool and part.name == _MESSENGER}
        try:
            waiting |= dict.fromkeys(self._pools_with_messages())
        except LvmUnfinished:
            raise
        except (LvmFailed, BadReport) as error:
            self.done.append(f"not known what thin pools are still to be told: {error}")
        for pool in waiting:
            try:
                self._send_messages(pool)
            except LvmUnfinished:
                raise
            except LvmFailed as error:
                self.done.append(f"{pool} is not told of earlier changes: {error}")
            else:
                self.done.append(f"told {pool} of earlier changes")
        return bool(waiting)

    def _pools_with_messages(self) -> list[str]:
        """Read them from each physical volume that holds LVM's metadata of the group."""
        which = ["--noheadings", "--options", "pv_name", "--select", "pv_mda_used_count>0"]
        found = []
        for node in self._lvm(["vgs", *which, self._group]).split():
            told = self._lvm(["pvck", "--dump", "metadata", node])
            found += pools_with_messages(told)
        return found

    def _send_messages(self, pool: str) -> None:
        exactly = f"lv_name={_MESSENGER} && lv_tags={{{_MESSENGER_TAG}}}"
        remove = ["lvremove", "--yes", "--select", exactly, self._group]
        how = ["--yes", "--thin", "--virtualsize", "512b", "--wipesignatures", "n"]
        whose = ["--name", _MESSENGER, "--addtag", _MESSENGER_TAG]
        self._lvm(remove)
        self._lvm(["lvcreate", *how, *whose, f"{self._group}/{pool}"])
        self._lvm(remove)

    def _kernel_transaction(self, pool: Part) -> int | None:
        """The kernel's transaction number, or None while the pool is not active."""
        try:
            words = self._dmsetup(["status", "--target", "thin-pool", self._device(pool)]).split()
        except LvmFailed:
            return None
        after = words.index("thin-pool") + 1 if "thin-pool" in words else len(words)
        number = words[after] if after < len(words) else ""
        return int(number) if number.isdigit() else None

    def _device(self, pool: Part) -> str:
        group, name = (word.replace("-", "--") for word in (self._group, pool.name))
        return f"{group}-{name}-tpool"

    def _try(self, argv: Sequence[str], done: str) -> None:
        """Do one of several steps; the next look tells whether it is right now."""
        try:
            self._dmsetup(argv)
        except LvmFailed as error:
            self.done.append(f"not done: {error}")
        else:
            self.done.append(done)

    def _parts(self) -> list[Part]:
        how = ["--all", "--reportformat", "json", "--units", "b", "--nosuffix"]
        told = self._lvm(["lvs", *how, "--options", PART_FIELDS, self._group])
        return read_parts(told)


def _whole(part: Part, parts: Sequence[Part]) -> Part:
    """The volume that a hidden part belongs to, at any depth; for any other, the part itself."""
    above = next((one for one in parts if part.parent and one.name == part.parent), None)
    return part if above is None else _whole(above, parts)


def read_devices(lines: Iterable[str]) -> Iterable[Device]:
    """Read `dmsetup info`, one device per line; leave out those that are not LVM's."""
    for line in lines:
        words = line.strip().split("/")
        if len(words) != len(_DEVICE_FIELDS.split(",")) or not words[1].startswith("LVM-"):
            continue
        name, uuid, suspended, tables, opened = words
        both, _, layer = uuid.removeprefix("LVM-").partition("-")
        yield Device(
            name=name,
            group_uuid=both[:32],
            volume_uuid=both[32:],
            layer=layer,
            suspended=suspended == "Suspended",
            tables=tables,
            open=int(opened) if opened.isdigit() else 1,
        )
