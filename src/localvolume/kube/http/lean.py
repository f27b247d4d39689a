"""aiohttp and asyncio's TLS without what we never use of them: 4 MB less in every agent.

- When imported, aiohttp builds a TLS context with every certificate authority of the system: 90 ms
  of CPU and 2 MB that stay. Every request of ours brings its own context (the cluster's authority
  and no other), so OpenSSL is shown an empty list while aiohttp is being imported.
- frozenlist's compiled form maps 1 MB to speed up a list of callbacks that we have none in.
- asyncio sets 256 KiB aside for each TLS connection, to read from it in one piece. A TLS record is
  at most 16 KiB, and each watch is a connection.

The agent must import this package before it imports aiohttp from anywhere else.
"""

from __future__ import annotations

import asyncio.sslproto
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ENVIRONMENT: Final = {
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    "FROZENLIST_NO_EXTENSIONS": "1",
}
_TLS_BUFFER_BYTES: Final = 16 * 1024


@contextmanager
def importing_lean() -> Iterator[None]:
    """Around `import aiohttp`: the environment that its parts look at while being imported."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def trim_tls_buffers() -> None:
    """For all TLS connections that asyncio makes from now on."""
    # Not a documented name; where it is gone, the connections are merely larger.
    if hasattr(asyncio.sslproto.SSLProtocol, "max_size"):
        asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
