"""How much a device is written in one step, by how long the last one took."""

from localvolume.cleaning.steps import Pace
from tests.suite.units import MIB


def test_steps_grow_on_a_fast_disk_and_shrink_on_a_slow_one() -> None:
    pace = Pace(64 * MIB)
    pace.took(0.01)
    assert pace.size == 128 * MIB
    for _ in range(10):
        pace.took(0.01)
    assert pace.size == 1024 * MIB
    pace.took(0.5)
    assert pace.size == 1024 * MIB
    for _ in range(20):
        pace.took(3.0)
    assert pace.size == MIB
