"""The limits of a volume that grows: those that a class sets apart from the size grow with it."""

from __future__ import annotations

from dataclasses import replace

from localvolume.backends.model import Record


def grown_to(record: Record, size_bytes: int) -> Record:
    """The record with that size, its own limits in proportion, rounded up."""

    def scaled(limit: int | None) -> int | None:
        if limit is None or not record.size_bytes:
            return limit
        return -(-limit * size_bytes // record.size_bytes)

    return replace(
        record,
        size_bytes=size_bytes,
        soft_bytes=scaled(record.soft_bytes),
        hard_bytes=scaled(record.hard_bytes),
    )
