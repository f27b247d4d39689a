"""Which names volume groups and logical volumes may have, and where their devices are found."""

from __future__ import annotations

import re
from typing import Final

from localvolume.host.lvm.errors import BadName

_NAME: Final = re.compile(r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,126}")
# lvm(8), "Valid names".
_RESERVED: Final = re.compile(
    r"\.|\.\.|(snapshot|pvmove).*"
    r"|.*_(cdata|cmeta|corig|mlog|mimage|rimage|rmeta|tdata|tmeta|vdata|vorigin|pmspare|imeta).*"
)
_LONGEST_BOTH: Final = 118


def check_name(name: str) -> str:
    """The name, if a group or volume may have it; raises BadName."""
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise BadName(f"{name[:140]!r} is no name of a volume group or logical volume")
    return name


def check_names(group: str, name: str) -> None:
    """Check both, and that LVM can make that volume; raises BadName.

    The kernel's name is made of both, each - doubled, and of what a hidden part is called.
    """
    length = sum(len(check_name(word)) + word.count("-") for word in (group, name))
    if length > _LONGEST_BOTH:
        raise BadName(f"{group}/{name[:140]} is too long for a volume: at most {_LONGEST_BOTH}")


def device_path(group: str, name: str) -> str:
    """Where an active volume's device is found."""
    return f"/dev/{check_name(group)}/{check_name(name)}"
