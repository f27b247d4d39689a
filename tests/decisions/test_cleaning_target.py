"""What is to be cleaned is described well enough to be known again, or not at all."""

import pytest

from localvolume.cleaning.receipt import CleaningRefused
from localvolume.cleaning.target import Held, Target


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (("block", "loop0", "7:0", None, {"kind": "block"}), "absolute"),
        (("block", "/dev/loop0", None, None, {"kind": "block"}), "which device"),
        (("filesystem", "/mnt/x", "7:0", None, {"kind": "filesystem"}), "which mount"),
        (("block", "/dev/loop0", "7:0", None, None), "neither an identity nor a recheck"),
    ],
)
def test_a_target_says_all_it_takes_to_check_it(
    target: tuple[str, str, str | None, int | None, dict[str, str] | None], why: str
) -> None:
    kind, path, device, mount_id, identity = target
    with pytest.raises(ValueError, match=why):
        Target(kind, path, device, mount_id, identity=identity)  # type: ignore[arg-type]


def test_what_was_given_up_is_not_begun() -> None:
    """A call that waited for a thread, until nobody waited for it any more."""
    held = Held(Target("block", "/dev/null", "1:3", identity={"kind": "block"}))
    held.close()
    with pytest.raises(CleaningRefused, match="/dev/null: given up before it began"):
        held.open()
    assert held.fd == -1
