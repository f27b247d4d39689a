"""Free loopback ports that stay ours while a component is stopped."""

import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

#: So many ports in a row are one process's own. A run has dozens of processes, each with a few
#: ports at once; the less each takes, the more runs there can be on one machine.
_BLOCK = 40
#: What a kubelet and what runs beside it listen on. In a node of ours, the way to the API server
#: begins at the port that this has.
_OF_NODES = range(10248, 10260)
#: What keeps a process's blocks from all others, for as long as it lives.
_held: list[socket.socket] = []


def below_ephemeral() -> range:
    """Ports that the kernel gives to nobody by itself.

    An ephemeral port would do until the API server is stopped for a test: then any outgoing
    connection can take it, and a client that keeps trying can even connect to itself.
    """
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    low, high = (int(number) for number in text.split())
    below = range(10000, low) if low >= 12000 else range(high + 1, 65536)
    return below if len(below) >= 2 * _BLOCK else range(1024, 65536)


def blocks() -> list[list[int]]:
    """All ports that may be chosen, by who is to have them together."""
    candidates = below_ephemeral()
    starts = candidates[: -_BLOCK + 1 : _BLOCK]
    return [
        [port for port in range(start, start + _BLOCK) if port not in _OF_NODES] for start in starts
    ]


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports free on 127.0.0.1 now; raises OSError where there are too few.

    No other process gets one of them, nor this one until no others are left: who is to listen there
    may take a while to begin, and may be stopped for a while.
    """
    # Not those of the process that this one was forked from.
    own = _own_ports(os.getpid())
    chosen: list[int] = []
    for port in itertools.islice(own, len(below_ephemeral())):
        if port not in chosen and _is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise OSError(f"fewer than {count} free ports on the loopback interface that are ours to give")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@functools.cache
def _own_ports(process: int) -> Iterator[int]:
    """The ports of one block after another that no other process has; in the end those again."""
    shuffled = blocks()
    random.SystemRandom().shuffle(shuffled)
    return itertools.cycle(port for block in shuffled if _hold(block) for port in block)


def _hold(block: list[int]) -> bool:
    """Have that block until this process ends; whether nobody else has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        # Of no directory: it ends with whoever holds it (unix(7), abstract sockets).
        held.bind(f"\0localvolume-ports-{block[0]}")
    except OSError:
        held.close()
        return False
    _held.append(held)
    return True
