"""Free loopback ports that stay ours while a component is stopped."""

import random
import socket
from pathlib import Path


def below_ephemeral() -> range:
    """Ports that the kernel gives to nobody by itself.

    An ephemeral port would do until the API server is stopped for a test: then any outgoing
    connection can take it, and a client that keeps trying can even connect to itself.
    """
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    low, high = (int(number) for number in text.split())
    return range(10000, low) if low >= 12000 else range(high + 1, 65536)


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports free on 127.0.0.1 now; raises OSError where there are too few."""
    candidates = below_ephemeral()
    if len(candidates) < 10 * count:
        candidates = range(1024, 65536)
    held: list[socket.socket] = []
    try:
        # Held until all are chosen, so that the same one is not chosen twice.
        for _ in range(1000):
            if len(held) == count:
                break
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                sock.bind(("127.0.0.1", random.SystemRandom().choice(candidates)))
            except OSError:
                sock.close()
                continue
            held.append(sock)
        if len(held) < count:
            raise OSError(f"fewer than {count} free ports on the loopback interface")
        return [sock.getsockname()[1] for sock in held]
    finally:
        for sock in held:
            sock.close()
