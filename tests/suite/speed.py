"""How slow this machine is, beside the one that the suite's bounds on time were chosen on.

A bound on time is a sanity bound: it ends a test that would wait for ever, and a slow machine must
never come near it. So bounds are multiplied by `factor()`.
"""

import functools
import json
import os
from time import perf_counter

#: What `measured()` gives on the machine that the bounds were chosen on, where two processes do
#: the same on two processors: the median of thirty times, which went from 9 to 13 ms.
REFERENCE_SECONDS = 0.01
#: No machine is taken to be slower than that: a failure is to be told some time.
SLOWEST = 5.0

_OBJECTS = json.dumps({"items": [{"name": f"volume-{number}"} for number in range(100)]})


@functools.cache
def factor() -> float:
    """By what a bound on time is multiplied here; measured once in each process."""
    return factor_of(measured())


def factor_of(seconds: float) -> float:
    """The factor where the measured work takes so many seconds; a fast machine shortens nothing."""
    return min(max(seconds / REFERENCE_SECONDS, 1.0), SLOWEST)


def measured() -> float:
    """Seconds that a fixed piece of work takes: Python's own, and calls to the kernel.

    The latter are dear in a guest. No process is started for it: some tests count those.
    """
    began = perf_counter()
    for _ in range(60):
        for _one in json.loads(_OBJECTS)["items"]:
            os.stat("/")
    return perf_counter() - began
