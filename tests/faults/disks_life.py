"""One life of what formats disks: look, and do what is approved; killed at a point, if given.

Arguments: the bench's fields as JSON; a point as JSON, [kind, n, "before" | "after" | seconds], or
null. Prints what it met of each kind, when it comes to its end.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localvolume.disks import act, claim
from localvolume.host.filesystem.xfsprogs import VERSION_COMMAND
from tests.host.support_disks import Bench

Point = tuple[str, int, str | float]

met: Counter[str] = Counter()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(kind: str, fn: Callable[..., Any], point: Point | None) -> Callable[..., Any]:
    """The same function, that dies before or after its n-th call."""

    def step(*arguments: Any, **keys: Any) -> Any:
        met[kind] += 1
        here = point is not None and (kind, met[kind]) == point[:2]
        if here and point and point[2] == "before":
            die()
        result = fn(*arguments, **keys)
        if here:
            die()
        return result

    return step


def deadly_mkfs(run: Callable[..., Any], point: Point | None) -> Callable[..., Any]:
    """The same for mkfs, which may also be killed so many seconds after its beginning."""

    async def step(*arguments: Any, **keys: Any) -> Any:
        if arguments[0] == VERSION_COMMAND:  # it touches no disk
            return await run(*arguments, **keys)
        met["mkfs"] += 1
        here = point is not None and ("mkfs", met["mkfs"]) == point[:2]
        if here and point and point[2] == "before":
            die()
        if here and point and isinstance(point[2], float):
            asyncio.get_running_loop().call_later(point[2], die)
        result = await run(*arguments, **keys)
        if here:
            die()
        return result

    return step


def main() -> None:
    fields = json.loads(sys.argv[1])
    point: Point | None = json.loads(sys.argv[2])
    if point is not None:
        point = (point[0], point[1], point[2])
    bench = Bench(
        Path(fields["directory"]),
        fields["size"],
        Path(fields["by_id"]),
        fields["fs_type"],
        mkfs_options=tuple(fields["mkfs_options"]),
        approved=frozenset(fields["approved"]),
    )
    random.seed(0)
    places: list[tuple[Any, str, str]] = [
        (act, "lock_device", "lock"),
        (claim, "write_at", "put"),
        (act, "open_mount", "open"),
        (act, "put_mount", "mount"),
        (os, "mkdir", "mkdir"),
        (os, "symlink", "link"),
    ]
    for module, name, kind in places:
        setattr(module, name, deadly(kind, getattr(module, name), point))
    vars(act)["run"] = deadly_mkfs(vars(act)["run"], point)
    found = bench.plan()
    for row in found.rows:
        if row.verdict == "mount":
            outcome = bench.mount_again(row)
            assert outcome.path, outcome.failure
    if found.approved:
        for outcome in bench.carry_out(found):
            assert outcome.path, outcome.failure
    print(json.dumps(met))


if __name__ == "__main__":
    main()
