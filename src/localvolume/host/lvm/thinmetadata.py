"""Reads what volumes of a thin pool share, while the pool is in use.

The kernel holds the pool's metadata as they are at one moment, for thin_delta(8) to read. A pool
has but one such hold, whoever asks for it, and it outlives processes and reboots: until it is
released, the metadata take more room with every change. So a tag of the pool says that the hold is
ours, from before it is taken until after it is released. A hold without the tag is somebody else's,
and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from localvolume.host.lvm.errors import LvmFailed, LvmUnfinished, VolumeInUse
from localvolume.host.lvm.report import BadReport, LogicalVolume, field, rows
from localvolume.host.lvm.thindelta import Comparison, read_delta

Do = Callable[[Sequence[str]], str]
"""Runs one command and returns what it says."""

READING: Final = "localvolume.dev/reading=metadata"
"""The tag of a pool whose metadata we hold."""
NUMBER_FIELDS: Final = "lv_name,lv_uuid,pool_lv,thin_id,lv_role"


@dataclass(frozen=True, slots=True)
class ThinMetadata:
    """The metadata of one active thin pool.

    `tag` puts our tag on the pool (True) or takes it off. Nobody else of ours may read them, or
    put the group right, meanwhile. All methods raise LvmFailed and BadReport.
    """

    dmsetup: Do
    delta: Do
    tag: Callable[[bool], None]
    pool: LogicalVolume

    def compared(self, left: int, right: int) -> Comparison:
        """What the volumes of these numbers share. Raises VolumeInUse if others hold them."""
        with self._held():
            # The path is as dmsetup's names are: LVM makes it for the hidden parts, too.
            ids = ["--thin1", str(left), "--thin2", str(right)]
            said = self.delta(["thin_delta", "-m", *ids, f"/dev/mapper/{self._device('_tmeta')}"])
        return read_delta(said, left, right)

    def release_left(self) -> None:
        """Release what a process held that was killed, and take off its tag."""
        if self._is_held():
            self._message("release_metadata_snap")
        self.tag(False)

    @contextmanager
    def _held(self) -> Iterator[None]:
        if self._is_held():
            raise VolumeInUse(
                f"somebody else reads the metadata of {self.pool.full_name}: wait for that, or"
                f" run dmsetup message {self._device('-tpool')} 0 release_metadata_snap"
            )
        self.tag(True)
        try:
            self._message("reserve_metadata_snap")
        except LvmUnfinished:
            raise  # it may be held: the tag stays
        except LvmFailed:
            self.tag(False)
            raise
        try:
            yield
        finally:
            self._message("release_metadata_snap")
            self.tag(False)

    def _is_held(self) -> bool:
        said = self.dmsetup(["status", "--target", "thin-pool", self._device("-tpool")])
        # "<start> <length> thin-pool <transaction> <metadata> <data> <held root> <mode> ..."
        words = said.split()
        if len(words) < 8 or words[2] != "thin-pool":
            raise BadReport(f"what {self.pool.full_name} is at: {said.strip() or 'nothing'}")
        if words[6] != "-" and not words[6].isdigit():
            raise BadReport(f"who reads the metadata of {self.pool.full_name}: {words[6]!r}")
        return words[6] != "-"

    def _message(self, what: str) -> None:
        self.dmsetup(["message", self._device("-tpool"), "0", what])

    def _device(self, part: str) -> str:
        group, name = (word.replace("-", "--") for word in (self.pool.group, self.pool.name))
        return f"{group}-{name}{part}"


def numbers_of(text: str, pool: str, volumes: Sequence[LogicalVolume]) -> list[int]:
    """The numbers that the pool knows the volumes by, of what `lvs` reports for NUMBER_FIELDS.

    Raises BadReport; also if a volume of the group may be read where theirs has no blocks.
    """
    known = {}
    for row in rows(text, "lv"):
        if "extthinorigin" in row.get("lv_role", ""):
            raise BadReport(f"thin volumes may show blocks of {field(row, 'lv_name')}")
        if row.get("pool_lv") == pool and row.get("thin_id", "").isdigit():
            known[field(row, "lv_uuid")] = int(row["thin_id"])
    if missing := [one.full_name for one in volumes if one.uuid not in known]:
        raise BadReport(f"LVM does not say what number {', '.join(missing)} has in {pool}")
    return [known[one.uuid] for one in volumes]
