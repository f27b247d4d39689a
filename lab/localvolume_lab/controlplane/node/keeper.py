"""The process that makes a node's namespaces, holds them, and takes all of it away again.

python -m localvolume_lab.controlplane.node.keeper '{"directory": ..., ...}': it prints one line of
JSON when the namespaces are ready, or why they are not, then serves until its standard input
closes. That happens when it is told to stop and when its parent dies in whatever way, so the one
is tried as often as the other. Its child is process 1 of a PID namespace: the kernel kills every
process of the node with it, and mounts and links go when the last of them is gone.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys

from localvolume_lab.controlplane.node import cgroups, loops, namespaces, relay, world
from localvolume_lab.controlplane.node.holding import Order

LOOPBACK = "127.0.0.1"


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    name, holder = cgroups.own_name(), 0
    left: list[str] = []
    try:
        try:
            cgroups.remove_stale()
            cgroups.make(name)
            holder = _hold(order)
            listening = _listen(holder, order)
        except (OSError, world.WorldFailed) as error:
            _answer({"error": str(error)})
        else:
            _answer({"holder": holder, "cgroup": f"/{name}"})
            asyncio.run(_serve(listening, order.apiserver))
    finally:
        left = _sweep(order, name, holder)
    if left:
        sys.exit(f"left behind, because it is still in use: {', '.join(left)}")


def _answer(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _hold(order: Order) -> int:
    """Fork process 1 of the node; returns its id once its mounts and links are there."""
    reading, writing = os.pipe()
    namespaces.unshare(namespaces.NEW_PIDS)
    if (pid := os.fork()) == 0:
        os.close(reading)
        world.be_process_one(order.directory, order.service, writing)
    os.close(writing)
    # Children of ours from now on belong to our own PID namespace again.
    namespaces.enter("/proc/self/ns/pid")
    with os.fdopen(reading, encoding="utf-8") as said:
        answer = said.read()
    if answer != world.READY:
        raise world.WorldFailed(answer or "process 1 of the node ended by itself")
    return pid


def _listen(holder: int, order: Order) -> list[socket.socket]:
    """Sockets in the node's network at both addresses of the API server."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    namespaces.enter(f"/proc/{holder}/ns/net")
    try:
        return [
            socket.create_server((LOOPBACK, order.apiserver)),
            socket.create_server((order.service, 443)),
        ]
    finally:
        namespaces.enter(f"/proc/self/fd/{own}")
        os.close(own)


async def _serve(listening: list[socket.socket], target: int) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)

    class Waiting(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            over.set()

    await loop.connect_read_pipe(Waiting, sys.stdin)
    await relay.serve(listening, target, over)


def _sweep(order: Order, name: str, holder: int) -> list[str]:
    """End every process, then remove what processes leave; returns what could not be removed."""
    attached = loops.beneath(order.directory)
    if holder:
        attached |= loops.linked(f"/proc/{holder}/root")
    loops.detach(attached)
    cgroups.thaw(name)
    if holder:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)  # returns when every process of its PID namespace is gone
    left = [*loops.wait_gone(attached), *cgroups.remove(name)]
    if order.remove and not left:
        shutil.rmtree(order.directory, ignore_errors=True)
    return left


if __name__ == "__main__":
    main()
