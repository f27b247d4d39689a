"""Whether an object asks for a cleaning, or is free: each thing that it takes is missing once."""

import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.objects import is_on_offer, is_to_be_cleaned
from tests.decisions.support_plan import bound_to, filesystem, released_from, volume_of

DISK = filesystem()


def test_what_was_released_and_is_being_deleted_is() -> None:
    assert is_to_be_cleaned(released_from(DISK, deleting=True))
    assert is_to_be_cleaned(released_from(DISK, deleting=True, phase="Failed"))


@pytest.mark.parametrize(
    "volume",
    [
        released_from(DISK),
        released_from(DISK, deleting=True, finalized=False),
        released_from(DISK, deleting=True, policy="Retain"),
        released_from(DISK, deleting=True, policy=None),
        released_from(DISK, deleting=True, phase="Available"),
        bound_to(DISK, deleting=True),
        volume_of(DISK, deleting=True),
    ],
    ids=["kept", "not ours", "retained", "no policy", "being bound", "bound", "never claimed"],
)
def test_where_anything_is_missing_it_is_not(volume: PersistentVolume) -> None:
    assert not is_to_be_cleaned(volume)


@pytest.mark.parametrize(
    ("volume", "free"),
    [
        (volume_of(DISK), True),
        (volume_of(DISK, phase="Pending"), True),
        (volume_of(DISK, phase="Failed"), False),
        (volume_of(DISK, deleting=True), False),
        (volume_of(DISK, claim="uid"), False),
        (bound_to(DISK), False),
        (released_from(DISK), False),
        (released_from(DISK, phase="Available"), False),
    ],
    ids=["available", "new", "failed", "going", "named", "bound", "released", "had"],
)
def test_what_any_claim_may_get_and_none_had_is_on_offer(
    volume: PersistentVolume, free: bool
) -> None:
    assert is_on_offer(volume) == free
