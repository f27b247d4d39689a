"""Taking over a volume that an older provisioner made: a plain directory, written down here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from localvolume.backends.model import NotThisVolume, Record
from localvolume.backends.pool import places
from localvolume.backends.pool.entrance import OpenPool
from localvolume.backends.pool.layout import overlapping


def adopted(using: OpenPool, name: str, directory: str, fields: dict[str, Any]) -> Record:
    """Write down the directory as the volume `name`; `fields` are what else its record holds.

    Raises NotThisVolume where there is none, or where it is a link, a mount point or another
    volume's; OSError.
    """
    record = Record(
        name=name,
        backend="directory",
        state="offered",
        directory=directory,
        adopted=True,
        **{"size_bytes": 0, "enforced": False, **fields},
    )
    with using.reserving:
        other = overlapping(directory, using.others(name).values())
        if other is not None:
            raise NotThisVolume(f"{directory} is, or is in, or holds {other.name}")
        with places.in_place(using.ground.pool, record, places.inode_of) as fd:
            record = replace(record, inode=places.inode_of(fd))
        using.records.write(record)
    return record
