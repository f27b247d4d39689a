"""Two versions of ours meet the same disk: what the newer one wrote, the older one reads or leaves
alone; and what an older one wrote is read still."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from localvolume.backends.lvm.record import fields_of, read_entry
from localvolume.backends.model import Record
from localvolume.backends.pool import records
from localvolume.disks import claim
from localvolume.disks.model import Claim
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.volumes.identity import compare, from_annotation
from localvolume.volumes.lvtags import BadTag, encode

RECORD = Record(
    name="pvc-1",
    backend="directory",
    state="offered",
    directory="pvc-1",
    size_bytes=1 << 20,
    claim_uid="1",
    given=("nobody", "2"),
)


def written(change: dict[str, Any], *, without: str = "", **top: Any) -> bytes:
    body = json.loads(records.encode(RECORD))
    body["record"].update(change)
    body["record"].pop(without, None)
    return json.dumps({**body, **top}).encode()


def test_a_record_with_less_and_with_more() -> None:
    assert records.decode("pvc-1", written({})) == RECORD
    assert records.decode("pvc-1", written({}, without="given")).given == ()
    assert records.decode("pvc-1", written({"hue": 1})) == RECORD


@pytest.mark.parametrize(
    ("change", "top"),
    [
        ({}, {"version": records.VERSION + 1}),
        ({"state": "frozen"}, {}),
        ({"backend": "zfs"}, {}),
        ({"given": "2"}, {}),
    ],
)
def test_a_record_of_what_is_not_known(change: dict[str, Any], top: dict[str, Any]) -> None:
    with pytest.raises(records.UnreadableRecord):
        records.decode("pvc-1", written(change, **top))


def test_the_tags_of_a_logical_volume() -> None:
    record = Record(
        name="pvc-1", backend="lvm", state="offered", directory="", size_bytes=4 << 20, given=("2",)
    )

    def tagged(**more: str) -> LogicalVolume:
        fields = {**fields_of(record), **more}
        return LogicalVolume(
            name="pvc-1",
            size_bytes=4 << 20,
            uuid="u",
            group="vg",
            kind="thick",
            tags=encode(fields),
        )

    assert read_entry(tagged(hue="1")).record.given == ("2",)
    assert read_entry(tagged(given="")).record.given == ()
    with pytest.raises(BadTag):
        read_entry(tagged(state="frozen"))


def test_an_identity_with_more_and_of_another_kind() -> None:
    seen = {"kind": "block", "wwn": "naa.5"}
    more = from_annotation('{"kind": "block", "wwn": "naa.5", "hologram": "h"}')
    other = from_annotation('{"kind": "zoned", "hologram": "h"}')
    assert more is not None
    assert other is not None
    assert compare(more, seen).verdict == "same"
    assert compare(other, seen).verdict == "differs"
    assert compare({"kind": "block", "hologram": "h"}, seen).verdict != "same"
    for text in ('{"kind": "block", "wwn": 5}', "[]", "nonsense"):
        with pytest.raises(ValueError, match="unreadable"):
            from_annotation(text)


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (b'{"digest": "d", "uuid": "u", "identity": {}, "hue": 1}', True),
        (b'{"digest": "d"}', False),
    ],
)
def test_the_claim_of_a_formatting(body: bytes, known: bool) -> None:
    begin = claim.encode(Claim("d", "u", {})).partition(b"\n")[0] + b"\n"
    packed = begin + len(body).to_bytes(2, "little") + body
    packed += hashlib.sha256(packed).digest()
    assert (claim.decode(packed.ljust(claim.BLOCK, b"\0")) is not None) == known
