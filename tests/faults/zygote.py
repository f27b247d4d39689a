"""A process that forks agents quickly: everything is imported once, each life begins in 20 ms.

Run as a program by `support_lives`. One line of JSON on standard input per life; it answers with a
line for the birth and one for the death, and reaps only when asked for the next, so that the number
of a dead agent is nobody else's while it may still be sent a signal.

An order may name a *point* at which the agent kills itself with SIGKILL, between two lines of the
program: before or after the n-th "create", "patch" or "delete" at the API server (Events and
CSIStorageCapacities do not count), the n-th "unlink", "rmdir" or "mkdir", the n-th time that it
begins to "zero" a stretch of a device or a "wipefs", the n-th write of a "record-..." of that
state, or the n-th of `_CALLS`.
Other kinds name what is wrong with the agent (`_WRONG`): the tests must notice it.
"""

import asyncio
import ctypes
import dataclasses
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

#: What an agent imports late; here it costs nothing.
_EARLY = (
    "localvolume.agent.agent",
    "localvolume.cli.agent",
    "localvolume.cli.logs",
    "localvolume.cli.main",
    "localvolume.backends.directory.backend",
    "localvolume.backends.image.backend",
    "localvolume.config.live",
    "localvolume.csi.controller",
    "localvolume.csi.groups",
    "localvolume.csi.node",
    "localvolume.csi.role",
    "localvolume.csi.snapshotmetadata",
    "localvolume.dynamic.role",
    "localvolume.dynamic.throttling.role",
    "asyncinotify",
    "yaml",
)
#: Written all the time; what they tell can be told again.
_UNCOUNTED = ("events", "csistoragecapacities")
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Point:
    """Counts what passes, and kills this process at the n-th."""

    def __init__(self, n: int, when: str, hits: str) -> None:
        self._left = n
        self._when = when
        self.hits = hits
        self._lock = threading.Lock()

    def passes(self, when: str, what: str) -> None:
        if when != self._when:
            return
        with self._lock:
            self._left -= 1
            if self._left:
                return
            fd = os.open(self.hits, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(fd, f"{when} {what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.passes("before", what)
            result = fn(*args, **kwargs)
            self.passes("after", what)
            return result

        return call


def _die_at_write(point: Point, wanted: str) -> None:
    from localvolume.kube.http.transport import Transport

    request = Transport.request

    async def counted(self: Transport, verb: str, kind: Any, *args: Any, **kwargs: Any) -> bytes:
        if verb != wanted or kind.plural in _UNCOUNTED:
            return await request(self, verb, kind, *args, **kwargs)
        point.passes("before", verb)
        answer = await request(self, verb, kind, *args, **kwargs)
        point.passes("after", verb)
        return answer

    Transport.request = counted  # type: ignore[method-assign]


#: Steps of dynamic volumes, by the module and the name in it.
_CALLS = {
    "renameat2": ("localvolume.host.tree.trees", "_renameat2"),
    "place": ("localvolume.backends.pool.directories", "put_into_place"),
    "back": ("localvolume.backends.pool.directories", "back_to_making"),
    "make": ("localvolume.backends.directory.backend", "DirectoryBackend.make"),
    "unmake": ("localvolume.backends.directory.backend", "DirectoryBackend.unmake"),
    "grow": ("localvolume.backends.directory.backend", "DirectoryBackend.grow"),
    "trash": ("localvolume.backends.directory.backend", "DirectoryBackend.retire"),
    "purge": ("localvolume.backends.directory.backend", "DirectoryBackend.purge"),
    "unrecord": ("localvolume.backends.pool.records", "Records.delete"),
    "image-make": ("localvolume.backends.image.backend", "ImageBackend.make"),
    "image-grow": ("localvolume.backends.image.backend", "ImageBackend.grow"),
    "image-trash": ("localvolume.backends.image.backend", "ImageBackend.retire"),
    "image-purge": ("localvolume.backends.image.backend", "ImageBackend.purge"),
    "image-cut": ("localvolume.backends.image.together", "clone_blocks"),
    "btrfs-copy": ("localvolume.backends.btrfs.backend", "BtrfsBackend.copy"),
    "allocate": ("localvolume.backends.image.growing", "allocate"),
    "capacity": ("localvolume.host.loop.attach", "set_capacity"),
    "grow-xfs": ("localvolume.backends.image.growing", "grow_xfs"),
    "loop": ("localvolume.host.loop.attach", "_configure"),
    "unloop": ("localvolume.host.loop.attach", "detach"),
    # Of CSI calls.
    "answer": ("localvolume.dynamic.called", "Calls.answer"),
    "new-mount": ("localvolume.csi.staging.act", "open_mount"),
    "clone-mount": ("localvolume.csi.staging.act", "clone_mount"),
    "put-mount": ("localvolume.csi.staging.act", "put_mount"),
    "target": ("localvolume.csi.staging.places", "make_target"),
    "untarget": ("localvolume.csi.staging.places", "remove_target"),
    "unmount": ("localvolume.csi.staging.places", "unmount"),
    "limit": ("localvolume.host.cgroups", "Hierarchy.limit"),
}


def _replace(module: str, name: str, change: Callable[[Any], Any]) -> None:
    """Have something else called where the program calls that function or method."""
    owner: Any = importlib.import_module(module)
    *classes, last = name.split(".")
    for one in classes:
        owner = getattr(owner, one)
    setattr(owner, last, change(getattr(owner, last)))


def _die_at_record(point: Point, wanted: str) -> None:
    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        counting = point.around(wanted, write)

        def call(self: Any, record: Any, **kwargs: Any) -> Any:
            is_it = wanted == f"record-{record.state}"
            return (counting if is_it else write)(self, record, **kwargs)

        return call

    _replace("localvolume.backends.pool.records", "Records.write", counted)


def _clean_by(clean: Any) -> None:
    """Have the agent clean by another function."""
    from localvolume.agent.deeds import Deeds
    from localvolume.cli import agent

    vars(agent)["run"] = partial(agent.run, deeds=Deeds(clean=clean))


def _die_at_host_call(point: Point, wanted: str) -> None:
    if wanted == "zero":
        from localvolume.cleaning.run import clean
        from localvolume.cleaning.steps import DeviceCalls

        calls = DeviceCalls()
        calls = dataclasses.replace(calls, zero_out=point.around(wanted, calls.zero_out))
        _clean_by(partial(clean, calls=calls))
    elif wanted == "wipefs":
        popen = subprocess.Popen
        wiping = point.around(wanted, popen)

        def start(argv: list[str], *args: Any, **kwargs: Any) -> Any:
            wipes = any(word.endswith("wipefs") for word in argv)
            return (wiping if wipes else popen)(argv, *args, **kwargs)

        vars(subprocess)["Popen"] = start
    else:
        vars(os)[wanted] = point.around(wanted, getattr(os, wanted))


def _never_clean() -> None:
    """An agent that only says that it cleaned: the checks of the test must notice it."""
    from localvolume.cleaning.receipt import Receipt
    from localvolume.static.facts import probe

    async def lie(_target: Any, method: Any, **_: Any) -> Receipt:
        await asyncio.sleep(0)
        return Receipt(method, 0, 0, 0.0, 0, "proved")

    _clean_by(lie)
    # The second guard, which would keep back what a tenant's data are still in.
    vars(probe)["looks_empty"] = lambda _path: type("Emptiness", (), {"empty": True})()
    vars(probe)["first_data"] = lambda *_args, **_kwargs: None


def _never_remove() -> None:
    """An agent that only says that it removed."""

    def lie(_self: Any, *_args: Any, **_kwargs: Any) -> None:
        return

    for name in ("retire", "purge"):
        _replace(
            "localvolume.backends.directory.backend", f"DirectoryBackend.{name}", lambda _: lie
        )


def _reuse() -> None:
    """An agent that gives what was removed to the next claim."""
    from localvolume.backends.directory.backend import DirectoryBackend

    removed: list[str] = []

    def keep(self: Any, _pool: int, path: str, record: Any, **_: Any) -> None:
        removed.append(f"{path}/.localvolume/trash/{record.trash}")

    def reusing(make: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: DirectoryBackend, pool: int, path: str, record: Any) -> Any:
            made = make(self, pool, path, record)
            if not removed:
                return made
            new = f"{path}/.localvolume/making/{record.name}"
            os.rmdir(new)
            os.rename(removed.pop(), new)
            return dataclasses.replace(made, inode=os.stat(new).st_ino)

        return call

    _replace("localvolume.backends.directory.backend", "DirectoryBackend.purge", lambda _: keep)
    _replace("localvolume.backends.directory.backend", "DirectoryBackend.make", reusing)


def _double() -> None:
    """An agent that names the same directory in every PersistentVolume."""
    first: list[str] = []

    def constant(host_path: Callable[..., str]) -> Callable[..., str]:
        def call(*args: Any) -> str:
            first.append(host_path(*args))
            return first[0]

        return call

    _replace("localvolume.backends.directory.backend", "DirectoryBackend.host_path", constant)


def _lose() -> None:
    """An agent that empties volumes that it finds when it starts."""

    def empty(_self: Any, _pool: int, path: str, record: Any) -> None:
        where = f"{path}/{record.directory}"
        for name in os.listdir(where):
            os.rename(f"{where}/{name}", f"{path}/.localvolume/trash/{record.name}.{name}")

    _replace("localvolume.backends.directory.backend", "DirectoryBackend.attach", lambda _: empty)


_WRONG = {
    "never-clean": _never_clean,
    "never-remove": _never_remove,
    "reuse": _reuse,
    "double": _double,
    "lose": _lose,
}


def _prepare(kind: str, point: Point) -> None:
    if kind in ("create", "patch", "delete"):
        _die_at_write(point, kind)
    elif kind in ("unlink", "rmdir", "mkdir", "zero", "wipefs"):
        _die_at_host_call(point, kind)
    elif kind.startswith("record-"):
        _die_at_record(point, kind)
    elif kind in _CALLS:
        _replace(*_CALLS[kind], partial(point.around, kind))
    elif kind:
        _WRONG[kind]()


def _hurry(paces: dict[str, dict[str, float]]) -> None:
    """Give the agent paces of its roles; a name that there is not is an error."""
    from localvolume.agent.paces import Paces
    from localvolume.cli import agent
    from localvolume.dynamic.paces import DynamicPaces
    from localvolume.flexvolume.paces import FlexPaces

    classes: dict[str, Any] = {"dynamic": DynamicPaces, "flexvolume": FlexPaces}
    made = {role: classes[role](**values) for role, values in paces.items()}
    vars(agent)["run"] = partial(agent.run, paces=Paces(**made))


def _live(order: dict[str, Any]) -> None:
    """The life of one agent, in the forked process; does not return."""
    _die_with_parent()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()
    os.environ.update(order["environment"])
    kind, n, when = order.get("point") or ("", 0, "")
    point = Point(n, when, order["hits"])
    _hurry(order["paces"])
    _prepare(kind, point)
    main = importlib.import_module("localvolume.cli.main").main
    status = 1
    try:
        status = main(order["arguments"])
    except BaseException:  # noqa: BLE001 - told before this process ends
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status or 0)


def _serve() -> None:
    _die_with_parent()
    for name in _EARLY:
        importlib.import_module(name)
    previous = 0
    for line in sys.stdin:
        if previous:
            os.waitpid(previous, 0)
        previous = os.fork()
        if not previous:
            _live(json.loads(line))
        print(f"born {previous}", flush=True)
        ended = os.waitid(os.P_PID, previous, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        print(f"died {status}", flush=True)


if __name__ == "__main__":
    _serve()
