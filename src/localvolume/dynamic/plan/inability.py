"""Which pools cannot do what they are asked, and why: pure.

Such a pool can be opened, and what lies in it is served. But sizes are to be enforced there, and
its filesystem or its kernel cannot: no claim that asks for that gets a volume. Whoever asks for
none is served, so a pool is judged by its own word and by the classes that may use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from localvolume.dynamic.model import ClassFacts, Pool
from localvolume.dynamic.plan.claims import is_enforced, is_for, unfit, why_unenforced


def inabilities(pools: Sequence[Pool], classes: Iterable[ClassFacts]) -> Mapping[str, str]:
    """Why pools cannot serve whom they should, by the pool's name; those that can are left out.

    A pool that has no problem of its own to begin with: one with a problem can do nothing at all.
    """
    valid = [one for one in classes if not one.problem]
    found = {}
    for pool in pools:
        if pool.report.problem or pool.report.abilities.enforce:
            continue
        asking = [one for one in valid if is_for(pool, one)]
        refused = [one for one in asking if is_enforced(pool, one)]
        if not pool.config.enforce:
            # Its administrator said so: a class that wants more may have it from another pool.
            refused = [one for one in refused if not _is_served(pools, one)]
        if refused or (pool.config.enforce and not asking):
            found[pool.config.name] = _text(pool, asking, refused)
    return found


def _is_served(pools: Iterable[Pool], class_facts: ClassFacts) -> bool:
    return any(is_for(pool, class_facts) and not unfit(pool, class_facts, None) for pool in pools)


def _text(pool: Pool, asking: Sequence[ClassFacts], refused: Sequence[ClassFacts]) -> str:
    """With the classes, where others are served."""
    names = ", ".join(sorted(one.name for one in refused))
    if len(refused) == len(asking):
        return why_unenforced(pool)
    return f"class {names} is not served: {why_unenforced(pool)}"
