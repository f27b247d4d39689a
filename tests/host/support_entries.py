"""Entries of discovery directories, as a look at real mounts and devices finds them."""

from pathlib import Path

from localvolume.host.mount.mounts import read_mount_table
from localvolume.static.facts.probe import probe
from localvolume.static.model import Entry


def entry_at(path: Path | str) -> Entry:
    """What is at the path."""
    where = str(path)
    found = probe(Entry("", "", where, where), read_mount_table().at(where), offered=True)
    assert found.problem is None, found.problem
    return found
