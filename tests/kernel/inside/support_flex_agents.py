"""A zygote of agents (tests/faults/zygote.py) that die where they are ordered to, or do wrong.

As a program it is the zygote, `LvmZygote` is who starts it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults import zygote
from tests.faults.support_lives import Zygote
from tests.kernel.inside.support_kills import Hooks


class LvmZygote(Zygote):
    """Forks agents that wait for orders."""

    program = ("-m", "tests.kernel.inside.support_flex_agents")

    @property
    def pid(self) -> int:
        """Of the agent that lives, 0 where none does."""
        return self._pid

    def start_with(self, arguments: Sequence[str], wrong: str = "") -> None:
        """Begin a life with these arguments; `wrong` says what is wrong with the agent."""
        self._arguments = ["agent", *arguments]
        self.start((wrong or "orders", 0, str(self.hits)), hurried=True)  # type: ignore[arg-type]


def _early_mark() -> None:
    """An agent that says `made` before it has made the filesystem."""
    from localvolume.flexvolume.driver import MADE, MAKING
    from localvolume.flexvolume.drivers.lvm import driver
    from localvolume.volumes.lvtags import PREFIX

    make = vars(driver)["make_filesystem"]

    def lie(run: Any, node: str, *args: Any, **kwargs: Any) -> None:
        tags = [f"--deltag={PREFIX}state={MAKING}", f"--addtag={PREFIX}state={MADE}"]
        run(["lvm", "lvchange", *tags, node.removeprefix("/dev/")], 30)
        make(run, node, *args, **kwargs)

    vars(driver)["make_filesystem"] = lie


def _blind_collector() -> None:
    """An agent that takes PersistentVolumes for gone, and their ends for seen, without asking."""
    from localvolume.flexvolume.collecting import Collector
    from localvolume.flexvolume.driver import TAG_PV_UID
    from localvolume.flexvolume.plan import collect
    from localvolume.flexvolume.plan.collect import Gone

    async def answers(_self: Any, volumes: Any, _there: Any) -> Any:
        await asyncio.sleep(0)
        return {one.name: Gone(60, noted_here=True) for one in volumes}

    async def ask(_self: Any, _volume: Any) -> Any:
        await asyncio.sleep(0)
        return Gone(60, noted_here=True)

    vars_of: Any = Collector
    vars_of._answers, vars_of._ask = answers, ask
    vars(collect)["TAG_ENDED"] = TAG_PV_UID


def _never_remove() -> None:
    """An agent that only says that it removed."""
    from localvolume.flexvolume.drivers.lvm.driver import LvmDriver

    driver: Any = LvmDriver
    driver.remove = lambda _self, _volume: None


_WRONG: Mapping[str, Callable[[], None]] = {
    "early-mark": _early_mark,
    "blind-collector": _blind_collector,
    "never-remove": _never_remove,
}


def _prepare(kind: str, point: zygote.Point) -> None:
    Hooks(Path(point.hits).with_name("order")).install()
    if kind != "orders":
        _WRONG[kind]()


def _main() -> None:
    vars(zygote)["_prepare"] = _prepare
    vars(zygote)["_EARLY"] = (*zygote._EARLY, *_FLEX)
    zygote._serve()


_FLEX = tuple(
    f"localvolume.flexvolume.{name}"
    for name in ("role", "server", "drivers.lvm", "binding", "collecting", "keeping")
)


if __name__ == "__main__":
    _main()
