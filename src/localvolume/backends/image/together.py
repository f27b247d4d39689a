"""Snapshots of several images, all cut at one moment: no write is in one that began after the cut.

The filesystems in the images are frozen, all of them before the first image is cut: what a program
has written to one, and waited for, before it wrote to another, is in the snapshots in that order.
Only they are frozen: the pool's own filesystem goes on, and so shares blocks meanwhile. A volume
that nobody uses needs no freeze, only that nobody begins to. Raw blocks in use cannot be held.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from time import time_ns
from typing import NamedTuple

from localvolume.backends import still
from localvolume.backends.image.attaching import Attachments
from localvolume.backends.image.copying import clone_blocks, closed
from localvolume.backends.image.filesystem import content_of
from localvolume.backends.model import Record
from localvolume.backends.still import Still


class Begun(NamedTuple):
    """A new, open, empty image, the record of the snapshot that it is to be, and its origin."""

    fd: int
    record: Record
    origin: Record


def cut_together(at: Attachments, pool: int, members: Sequence[Begun]) -> list[Record]:
    """Fill the images with what their origins hold at one moment; returns the records completed.

    Raises Busy if one cannot be held still, NoSpace, BackendFailed, OSError.
    """
    with ExitStack() as held:
        origins = [held.enter_context(_held(at, pool, member.origin)) for member in members]
        with still.all_frozen([device for _, device in origins]):
            # What was on disk by then is in it.
            cut_at = time_ns()
            for member, (image, origin) in zip(members, origins, strict=True):
                os.fsync(origin.device)
                clone_blocks(member.fd, image)
    return [_complete(member, cut_at) for member in members]


def _complete(member: Begun, cut_at: int) -> Record:
    inode = os.fstat(member.fd).st_ino
    return closed(member.fd, replace(member.record, cut_at=cut_at, inode=inode))


@contextmanager
def _held(at: Attachments, pool: int, origin: Record) -> Iterator[tuple[int, Still]]:
    """Yield the open image of an origin, and what there is to hold of it."""
    content = content_of(origin)
    fs = "" if content == "raw" else content
    with (
        at.attached(pool, origin) as (image, loop),
        still.held(origin.name, loop.node, loop.device, fs) as device,
    ):
        yield image, device
