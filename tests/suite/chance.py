"""What tests that draw at random begin with, and for how long they go on.

`make test` always draws the same: SEED is fixed there, and each point is met once. `make soak`
(soak.py) gives every run another seed, which it prints, and so many seconds.
"""

import os
import time
from collections.abc import Iterator

from hypothesis import HealthCheck, settings

_SECONDS = "LOCALVOLUME_SOAK_SECONDS"

#: The same choices again for the same seed; what they meet may still depend on timing.
SEED = int(os.environ.get("LOCALVOLUME_SEED", "1"))
#: How long a test of the soak draws.
SOAK_SECONDS = float(os.environ.get(_SECONDS, "60"))

# A deadline for one example would be one on time, and a loaded machine would miss it; so is what
# the first examples may take to be drawn.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=_SECONDS not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


def examples(count: int) -> int:
    """How many examples a property is tried with: all in the soak, and a quarter of them before.

    Of the mutants of dynamic/plan/paths.py a quarter finds the same as all.
    """
    return count if _SECONDS in os.environ else count // 4


def rounds() -> Iterator[int]:
    """Numbers from 0 on until a test of the soak has drawn for long enough; one at least."""
    end = time.monotonic() + SOAK_SECONDS
    number = 0
    while not number or time.monotonic() < end:
        yield number
        number += 1
