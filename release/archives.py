"""Archives that are the same bytes for the same content: sorted, of root, of one time."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    content: bytes
    mode: int = 0o644


def tar_gz(entries: Mapping[str, Entry], epoch: int) -> bytes:
    """A compressed tar of files by their names."""
    made = io.BytesIO()
    # A name or a time in the header would differ between two builds.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=made, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, entry in sorted(entries.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(entry.content), entry.mode, epoch
            tar.addfile(member, io.BytesIO(entry.content))
    return made.getvalue()


def files_of(archive: bytes) -> dict[str, Entry]:
    """The files of a compressed tar, by their names."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                found[member.name] = Entry(file.read(), 0o755 if member.mode & 0o100 else 0o644)
    return found
