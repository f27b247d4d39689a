"""Free loopback ports that stay ours while a component is stopped."""

import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

#: So many ports in a row are one process's own.
_BLOCK = 400
#: What keeps a process's block from all others, for as long as it lives.
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


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports free on 127.0.0.1 now; raises OSError where there are too few.

    No other process gets one of them, nor this one for the next few hundred: who is to listen there
    may take a while to begin.
    """
    # Not those of the process that this one was forked from.
    own = _own_ports(os.getpid())
    chosen: list[int] = []
    for port in itertools.islice(own, _BLOCK):
        if _is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise OSError(f"fewer than {count} free ports on the loopback interface")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@functools.cache
def _own_ports(process: int) -> Iterator[int]:
    """The ports of a block that no other process has, again and again."""
    candidates = below_ephemeral()
    starts = list(candidates[: -_BLOCK + 1 : _BLOCK])
    random.SystemRandom().shuffle(starts)
    for start in starts:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # Of no directory: it ends with whoever holds it (unix(7), abstract sockets).
            held.bind(f"\0localvolume-ports-{start}")
        except OSError:
            held.close()
            continue
        _held.append(held)
        return itertools.cycle(range(start, start + _BLOCK))
    raise OSError(f"all ports are taken: {len(starts)} processes have {_BLOCK} each")
