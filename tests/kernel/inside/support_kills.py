"""Deaths in the middle of work on logical volumes: of the process at work, or of its commands.

They are ordered while it lives: `Orders.give` writes where the next is to happen, and `Hooks` in
the process see to it.
"""

import asyncio
import contextlib
import dataclasses
import importlib
import json
import os
import pickle
import random
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localvolume.host.process import commands
from localvolume.host.process.commandsync import on_loop
from localvolume.kube.http.transport import Transport

#: Steps at which there may be a death, beside host commands (`tool_of` names those).
STEPS = ("patch", "grow_ext4", "grow_xfs", "zero")


@dataclasses.dataclass(frozen=True)
class Order:
    """Who dies where: `victim` is "process" (the agent) or "command"; the n-th of `what`.

    `when`: "before" or "after" it, or "during": so many `seconds` after its start. `what` "any" is
    any host command. `number` tells orders apart.
    """

    victim: str
    what: str
    n: int = 1
    when: str = "during"
    seconds: float = 0.0
    number: int = 0


def tool_of(argv: Sequence[str]) -> str:
    """What a command of the agent's is: `lvchange` is told apart by what it changes."""
    words = [word for word in argv if "=" not in word]
    if words[:1] == ["env"]:
        words = words[1:]
    if words[:1] != ["lvm"]:
        return words[0]
    if words[1] != "lvchange":
        return words[1]
    if "--addtag" in words or "--deltag" in words:
        return "lvchange-tag"
    if "--activate" in words:
        return "lvchange-up" if words[words.index("--activate") + 1] == "y" else "lvchange-down"
    return "lvchange-refresh"


def deaths_at(*points: str) -> tuple[Order, ...]:
    """Of the process before each of them, and after the last."""
    before = [Order("process", point, 1, "before") for point in points]
    return (*before, Order("process", points[-1], 1, "after"))


class Orders:
    """Orders to a process that lives, one at a time, by a file; and what became of them."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "order"
        self._hits = directory / "order-hits"
        self._number = 0

    def give(self, order: Order | None) -> int:
        """Its number, for `was_met`; None: nobody is to die."""
        self._number += 1
        new = self.file.with_suffix(".new")
        told = dataclasses.asdict(dataclasses.replace(order, number=self._number)) if order else {}
        new.write_text(json.dumps(told))
        new.rename(self.file)
        return self._number

    def was_met(self, number: int) -> bool:
        """Whether the order of that number has been carried out."""
        return any(line.startswith(f"{number} ") for line in self._lines())

    def hits(self) -> Counter[str]:
        """How often which death was died: `<victim> <when> <what>`."""
        return Counter(line.partition(" ")[2] for line in self._lines())

    def _lines(self) -> list[str]:
        return self._hits.read_text().splitlines() if self._hits.exists() else []


class Hooks:
    """In the process that is to die, or whose commands are. `install` once, in a fork."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._hits = file.with_name("order-hits")
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def install(self) -> None:
        """From now on orders are carried out here."""
        start, run, request = commands._start, commands.run, Transport.request

        def started(argv: Sequence[str], *args: Any) -> Any:
            order = self._due(tool_of(argv), ("before", "during"))
            if order and order.when == "before":
                self._die(order)
            running = start(argv, *args)
            if order:
                asyncio.get_running_loop().call_later(order.seconds, self._kill, order, running)
            return running

        async def ran(argv: Sequence[str], **how: Any) -> Any:
            finished = await run(argv, **how)
            if order := self._due(tool_of(argv), ("after",)):
                self._die(order)
            return finished

        async def requested(self_: Transport, verb: str, kind: Any, *a: Any, **k: Any) -> bytes:
            counts = verb == "patch" and kind.plural != "events"
            if counts and (order := self._due("patch", ("before", "during"))):
                self._die(order)
            answer = await request(self_, verb, kind, *a, **k)
            if counts and (order := self._due("patch", ("after",))):
                self._die(order)
            return answer

        vars(commands)["_start"] = started
        vars(commands)["run"] = ran
        Transport.request = requested  # type: ignore[assignment, method-assign]
        for name in ("grow_ext4", "grow_xfs"):
            self._around("localvolume.backends.lvm.filesystem", name, name)
        self._around("localvolume.host.block.blockdev", "zero_out", "zero")

    def _around(self, module: str, name: str, what: str) -> None:
        owner = vars(importlib.import_module(module))
        step = owner[name]

        def call(*args: Any) -> Any:
            if order := self._due(what, ("before", "during")):
                self._die(order)
            result = step(*args)
            if order := self._due(what, ("after",)):
                self._die(order)
            return result

        owner[name] = call

    def _due(self, what: str, when: tuple[str, ...]) -> Order | None:
        """The order, where this is what it waits for."""
        with self._lock:
            try:
                told = json.loads(self._file.read_text())
            except FileNotFoundError:
                return None
            if not told:
                return None
            order = Order(**told)
            any_one = order.what == "any" and what not in STEPS
            if order.when not in when or not (any_one or order.what == what):
                return None
            self._counts[order.number] += 1
            return order if self._counts[order.number] == order.n else None

    def _kill(self, order: Order, running: Any) -> None:
        """Kill the command, or ourselves, if the command has not ended before."""
        if running.exited.done():
            return
        if order.victim == "process":
            self._die(order)
        self._write(order)
        with contextlib.suppress(ProcessLookupError):
            os.kill(running._process.pid, signal.SIGKILL)

    def _die(self, order: Order) -> None:
        self._write(order)
        os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, order: Order) -> None:
        fd = os.open(self._hits, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"{order.number} {order.victim} {order.when} {order.what}\n".encode())
        os.close(fd)


class Chooser:
    """Chooses who dies where, in the course of a call that runs certain commands."""

    def __init__(self, chance: random.Random, command_seconds: float) -> None:
        """`command_seconds`: how long a look of LVM's takes on this machine; may be set anew."""
        self._chance = chance
        self.command_seconds = command_seconds

    def order(self, mostly: Sequence[str], steps: Sequence[str] = ()) -> Order:
        """One death; `mostly` are the commands that change something, `steps` other points."""
        chance = self._chance
        seconds = chance.uniform(0, 1.2 * self.command_seconds)
        kind = chance.random()
        if kind < 0.25:
            # The n-th command of all, whichever it is: reports, too.
            return Order(
                self._victim(), "any", 1 + int(6 * chance.random() ** 2), "during", seconds
            )
        if steps and kind < 0.35:
            return Order("process", chance.choice(steps), 1, chance.choice(("before", "after")))
        what = chance.choice(mostly)
        n = chance.choice((1, 1, 2)) if what == "lvchange-tag" else 1
        if kind < 0.55:
            return Order("process", what, n, chance.choice(("before", "after")))
        return Order(self._victim(), what, n, "during", seconds)

    def _victim(self) -> str:
        return self._chance.choice(("process", "command"))


# --- forks of the test itself --------------------------------------------------------------------


def forked(act: Callable[[Any], Any], orders: Orders, seconds: float = 300) -> tuple[int, Any]:
    """Do something in a fork, in a worker thread beside a loop that runs its commands (as an
    agent's worker does): its exit status, minus the signal, and what it returned.

    `act` is given a `Run`. Where it raises the status is 1, and the traceback is what is returned.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            status = _in_fork(act, orders, write)
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        watch = threading.Timer(seconds, os.kill, (child, signal.SIGABRT))
        watch.start()
        try:
            said = pipe.read()
            _, ended = os.waitpid(child, 0)
        finally:
            watch.cancel()
            watch.join()
    status = os.waitstatus_to_exitcode(ended)
    return status, pickle.loads(said) if status in (0, 1) and said else None


def _in_fork(act: Callable[[Any], Any], orders: Orders, write: int) -> int:
    Hooks(orders.file).install()

    async def main() -> Any:
        return await asyncio.to_thread(act, on_loop(asyncio.get_running_loop()))

    status = 0
    try:
        said = pickle.dumps(asyncio.run(main()))
    except BaseException:  # noqa: BLE001 - nothing may go on in a child
        status, said = 1, pickle.dumps(traceback.format_exc())
    while said:
        said = said[os.write(write, said) :]
    return status


def seconds_of(act: Callable[[], object], times: int = 3) -> float:
    """How long it takes, at the median."""
    taken = []
    for _ in range(times):
        began = time.monotonic()
        act()
        taken.append(time.monotonic() - began)
    return sorted(taken)[times // 2]
