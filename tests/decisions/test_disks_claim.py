"""What is read back of a claim on a disk: also what a tenant wrote to look like one."""

import hashlib
import json

import pytest

from localvolume.disks.claim import BLOCK, decode, encode
from localvolume.disks.model import Claim

CLAIM = Claim("sha256:1", "0-1-2", {"wwn": "naa.5"})
MAGIC = b"localvolume: formatting begun\n"
FIELDS = {"digest": "sha256:1", "uuid": "0-1-2", "identity": {"wwn": "naa.5"}}


def forged(body: bytes, length: int | None = None) -> bytes:
    """A block with a hash that is right: who writes on a disk can compute one."""
    size = len(body) if length is None else length
    packed = MAGIC + size.to_bytes(2, "little") + body
    end = len(MAGIC) + 2 + size
    packed = packed[:end] + hashlib.sha256(packed[:end]).digest()
    return packed.ljust(BLOCK, b"\0")


def test_what_was_written_is_read() -> None:
    assert decode(encode(CLAIM)) == CLAIM
    assert decode(forged(json.dumps(FIELDS).encode())) == CLAIM


def test_what_does_not_fit_is_not_written() -> None:
    """A part of it would be taken for data by the next agent."""
    assert len(encode(Claim("d", "u", {"wwn": "x" * 3900}))) == BLOCK
    with pytest.raises(ValueError, match="too long"):
        encode(Claim("d", "u", {"wwn": "x" * 4000}))


@pytest.mark.parametrize(
    "block",
    [
        bytes(BLOCK),
        b"",
        MAGIC,
        encode(CLAIM)[:60],
        encode(CLAIM).replace(b"naa", b"nab"),
        forged(b""),
        forged(b"[]"),
        forged(b"{}"),
        forged(b"null"),
        forged(b"{"),
        forged(b"\xff\xfe"),
        forged(b'"' + b"\xff" * 8 + b'"'),
        forged(json.dumps(FIELDS | {"identity": ["wwn"]}).encode()),
        forged(json.dumps(FIELDS | {"digest": 7}).encode()),
        forged(json.dumps({"digest": "1", "uuid": "2"}).encode()),
        forged(b"[" * 4000),
        forged(b'{"more": ' + b"[" * 3900),
        forged(b"x" * 9, length=65535),
    ],
)
def test_anything_else_is_none(block: bytes) -> None:
    """Nothing is raised: the agent looks at disks that tenants write to."""
    assert decode(block) is None
