"""Whether a device of a discovery directory is a volume that was made for a claim.

Such a volume belongs to its claim, whatever path leads to its device: a link, a directory of
udev's. What an administrator made in the same volume group has no tag of ours and may be offered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localvolume.config.pools import LvmConfig
from localvolume.host.block.sysfs import base_of, logical_volumes_below
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commandsync import Run
from localvolume.volumes.lvtags import PREFIX


def made_for_claims(device: str, groups: Sequence[LvmConfig], run: Run) -> str:
    """Which volume of ours the device ("major:minor") is, or is made of; "" if there is none.

    Volumes are made for claims in these `groups`; LVM is asked only about what is in one of them.
    Blocks. Raises LvmFailed, BadReport, OSError: then nobody knows.
    """
    for uuid, group in logical_volumes_below(base_of(device)).items():
        used = next((one for one in groups if re.fullmatch(one.groups, group)), None)
        if used is None:
            continue
        lvm = Lvm(run, used.command_prefix, discovery=used.discovery)
        for volume in lvm.volumes(group):
            if volume.uuid.replace("-", "") == uuid:
                if any(tag.startswith(PREFIX) for tag in volume.tags):
                    return volume.full_name
                break
        else:
            raise FileNotFoundError(f"LVM knows of no such volume in {group}")
    return ""
