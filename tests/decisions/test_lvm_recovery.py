"""What recovery makes of commands that fail, or are killed, while it has LVM tell a thin pool what
it was not told. That LVM does so is shown in the guest (inside/test_lvm_thin_orphans.py).
"""

import json
from collections.abc import Sequence

import pytest

from localvolume.host.lvm.commands import LvmFailed, LvmUnfinished
from localvolume.host.lvm.recovery import Recovery

_POOL = {
    "lv_name": "pool",
    "lv_uuid": "uuid-pool",
    "lv_size": "4194304",
    "lv_layout": "thin,pool",
    "transaction_id": "4",
}
_ONE = {
    "lv_name": "one",
    "lv_uuid": "uuid-one",
    "lv_size": "4194304",
    "lv_layout": "thin,sparse",
    "pool_lv": "pool",
    "transaction_id": "3",
}
_METADATA = "vg0 {\nlogical_volumes {\npool {\nsegment1 {\nmessage1 {\ndelete = 2\n}\n}\n}\n}\n}\n"


class Group:
    """A thin pool with one volume, which waits for a message; `failing` is the command that fails,
    and how."""

    def __init__(self, failing: str, error: LvmFailed, *, kernel: int = 4) -> None:
        self._failing = failing
        self._error = error
        self._kernel = kernel
        self.asked: list[str] = []

    def lvm(self, argv: Sequence[str]) -> str:
        self.asked.append(argv[0])
        if argv[0] == self._failing:
            raise self._error
        if argv[0] == "lvs":
            return json.dumps({"report": [{"lv": [_POOL, _ONE]}]})
        return {"vgs": "  /dev/sda\n", "pvck": _METADATA}.get(argv[0], "")

    def dmsetup(self, argv: Sequence[str]) -> str:
        if argv[0] == "status":
            return f"0 262144 thin-pool {self._kernel} 114/1024 91/2048 - rw\n"
        return ""

    def recovered(self) -> tuple[str, ...]:
        return Recovery(self.lvm, self.dmsetup, "vg0").run()


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        ("", "told pool of earlier changes"),
        ("pvck", "not known what thin pools are still to be told: no"),
        ("vgs", "not known what thin pools are still to be told: no"),
        ("lvcreate", "pool is not told of earlier changes: no"),
        ("lvremove", "pool is not told of earlier changes: no"),
    ],
)
def test_what_fails_is_told_and_the_group_can_be_used(failing: str, told: str) -> None:
    """A pool that is full gets no volume, and must be emptied."""
    assert Group(failing, LvmFailed("no")).recovered() == (told,)


def test_metadata_that_cannot_be_read_is_told() -> None:
    group = Group("", LvmFailed("no"))
    (told,) = Recovery(
        lambda argv: "junk" if argv[0] == "pvck" else group.lvm(argv), group.dmsetup, "vg0"
    ).run()
    assert "not known what thin pools are still to be told: no metadata" in told
    assert "lvcreate" not in group.asked


@pytest.mark.parametrize("killed", ["pvck", "vgs", "lvcreate", "lvremove", "lvchange"])
def test_a_recovery_of_which_a_command_is_killed_is_not_done(killed: str) -> None:
    with pytest.raises(LvmUnfinished):
        Group(killed, LvmUnfinished("killed"), kernel=3).recovered()
