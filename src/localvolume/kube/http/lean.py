"""Trims aiohttp and asyncio's TLS of what we never use: this saves 4 MB in every agent.

- On import, aiohttp builds a TLS context with every certificate authority of the system: 90 ms of
  CPU, and 2 MB that are never freed. All our requests bring their own context (with only the
  cluster's authority), so OpenSSL is shown an empty list during the import.
- frozenlist's compiled form maps 1 MB to speed up a list of callbacks, and we register none.
- asyncio allocates a read buffer of 256 KiB for each TLS connection. A TLS record is at most
  16 KiB, and each watch is a connection.

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
    """Set, around `import aiohttp`, the environment variables that its parts read on import."""
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
    """Shrink the read buffers of all TLS connections that asyncio makes from now on."""
    # Not a documented name. If it is gone, connections merely take more memory.
    if hasattr(asyncio.sslproto.SSLProtocol, "max_size"):
        asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
