"""The text of the kernel's uevents, and what is none."""

import pytest

from localvolume.host.block.uevents import parse_uevent


def test_a_message_of_the_kernel() -> None:
    message = (
        b"add@/devices/virtual/block/loop0/loop0p1\0ACTION=add\0SUBSYSTEM=block\0"
        b"DEVNAME=loop0p1\0PARTNAME=a=b \xff\0SEQNUM=860\0"
    )
    assert parse_uevent(message) == {
        "ACTION": "add",
        "SUBSYSTEM": "block",
        "DEVNAME": "loop0p1",
        "PARTNAME": "a=b \udcff",
        "SEQNUM": "860",
    }


@pytest.mark.parametrize(
    "message", [b"", b"\0", b"libudev\0\xfe\xed\xca\xfe\0A=b", b"ACTION=add\0"]
)
def test_what_is_not_one_has_no_properties(message: bytes) -> None:
    assert parse_uevent(message) == {}
