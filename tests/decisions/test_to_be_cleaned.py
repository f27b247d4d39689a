"""Whether an object asks for a cleaning: of each thing that it takes, one is missing."""

import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.objects import is_to_be_cleaned
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
