"""A tar.gz that is written whole or not at all, and that only its owner can read."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import tarfile
from types import TracebackType
from typing import Any, Self


class Archive:
    """Use as a context manager: `add` files, then `publish`. Without `publish`, no file stays.

    Raises FileExistsError if `path` exists already: it is never overwritten.
    """

    def __init__(self, path: str, prefix: str) -> None:
        if os.path.lexists(path):
            raise FileExistsError(f"{path} is there already, and is not overwritten")
        self._path = path
        self._prefix = prefix
        self._partial = f"{path}.{secrets.token_hex(6)}.part"
        self.files: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._partial, flags, 0o600), "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._tar.close()
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._partial)

    def add(self, name: str, text: str, *, mtime: float) -> None:
        data = text.encode(errors="backslashreplace")
        entry = tarfile.TarInfo(f"{self._prefix}/{name}")
        entry.size, entry.mode, entry.mtime = len(data), 0o600, int(mtime)
        self._tar.addfile(entry, io.BytesIO(data))
        self.files.append({"name": name, "bytes": len(data)})

    def add_json(self, name: str, value: Any, *, mtime: float) -> None:
        self.add(name, json.dumps(value, indent=1, ensure_ascii=False) + "\n", mtime=mtime)

    def publish(self) -> None:
        """Gives the file its name once all of it is on disk. Raises FileExistsError, OSError."""
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        # Unlike a rename, a link does not replace a file that has appeared there meanwhile.
        os.link(self._partial, self._path)
