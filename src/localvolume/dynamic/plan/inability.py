"""Which pools cannot do what they are asked, and why: pure.

Such a pool can be opened, and its volumes are served. But it is to enforce sizes, and its
filesystem or kernel cannot, so no claim that asks for that gets a volume. Other claims are served:
a pool is therefore judged by its own configuration and by the classes that may use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from localvolume.dynamic.model import ClassFacts, Pool
from localvolume.dynamic.plan.placing import is_enforced, is_for, unfit, why_unenforced


def inabilities(pools: Sequence[Pool], classes: Iterable[ClassFacts]) -> Mapping[str, str]:
    """Why pools cannot serve whom they should, by the pool's name; those that can are left out.

    Pools that have a problem of their own are left out too: they can do nothing at all.
    """
    valid = [one for one in classes if not one.problem]
    found = {}
    for pool in pools:
        if pool.report.problem or pool.report.abilities.enforce:
            continue
        asking = [one for one in valid if is_for(pool, one)]
        refused = [one for one in asking if is_enforced(pool, one)]
        if not pool.config.enforce:
            # As its administrator wants: another pool may serve a class that asks for more.
            refused = [one for one in refused if not _is_served(pools, one)]
        if refused or (pool.config.enforce and not asking):
            found[pool.config.name] = _text(pool, asking, refused)
    return found


def _is_served(pools: Iterable[Pool], class_facts: ClassFacts) -> bool:
    return any(is_for(pool, class_facts) and not unfit(pool, class_facts, None) for pool in pools)


def _text(pool: Pool, asking: Sequence[ClassFacts], refused: Sequence[ClassFacts]) -> str:
    """Names the classes if others are served."""
    names = ", ".join(sorted(one.name for one in refused))
    if len(refused) == len(asking):
        return why_unenforced(pool)
    return f"class {names} is not served: {why_unenforced(pool)}"
