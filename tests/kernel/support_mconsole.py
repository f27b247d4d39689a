"""Asking a guest's kernel itself, past all that runs in it (User-mode Linux' management console).

Source of the format: arch/um/drivers/mconsole.h, `struct mconsole_request` and `mconsole_reply`.
"""

import socket
import struct
from pathlib import Path

_MAGIC = 0xCAFEBABE
_VERSION = 2
_REQUEST = struct.Struct("=III512s")
_REPLY = struct.Struct("=III")
_MOST_BYTES = 1 << 20


def ask(directory: Path, command: str, seconds: float) -> str | None:
    """What the kernel answers, None where it does not: one that answers nobody is stuck itself.

    `directory` is the guest's uml_dir; its answer comes back there.
    """
    console = next(directory.glob("*/mconsole"), None)
    if console is None:
        return None
    answer = directory / "answer"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.settimeout(seconds)
        asking.bind(str(answer))
        try:
            data = command.encode()
            asking.sendto(_REQUEST.pack(_MAGIC, _VERSION, len(data), data), str(console))
            text = ""
            while len(text) < _MOST_BYTES:
                reply = asking.recv(4096)
                _, more, length = _REPLY.unpack_from(reply)
                text += reply[_REPLY.size : _REPLY.size + length].decode(errors="replace")
                if not more:
                    break
        except (TimeoutError, ConnectionError):
            return None
        finally:
            answer.unlink()
    return text.replace("\0", "")
