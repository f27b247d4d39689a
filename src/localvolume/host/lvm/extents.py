"""Where on its disks a logical volume lies, and growing one onto chosen extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from localvolume.host.lvm.commands import Lvm, sized
from localvolume.host.lvm.report import BadReport, LogicalVolume, rows

_FIELDS: Final = "lv_name,seg_pe_ranges"


class ExtentLvm(Lvm):
    """LVM's commands, and those that deal with extents of physical volumes."""

    def places(self, volume: LogicalVolume) -> list[str]:
        """Its extents as `<physical volume>:<first>-<last>`. Raises BadReport, LvmFailed."""
        text = self._report("lvs", _FIELDS, "--segments", volume.full_name)
        places = [
            place for row in rows(text, "seg") for place in row.get("seg_pe_ranges", "").split()
        ]
        if not places or not all(_is_place(place) for place in places):
            raise BadReport(f"LVM does not say where {volume.full_name} lies")
        return places

    def extend_onto(self, volume: LogicalVolume, size_bytes: int, places: Sequence[str]) -> None:
        """Let it have that many bytes, those that are new out of these extents alone.

        Raises NoRoomInGroup where they are not free any more.
        """
        self._change(["lvextend", "--size", sized(size_bytes), "--yes", volume.full_name, *places])


def _is_place(place: str) -> bool:
    device, colon, extents = place.rpartition(":")
    first, dash, last = extents.partition("-")
    return bool(
        device.startswith("/dev/") and colon and dash and first.isdigit() and last.isdigit()
    )
