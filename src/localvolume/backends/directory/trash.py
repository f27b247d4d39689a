"""Delete a directory in the trash for good: its content first, then itself."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from localvolume.backends.model import BackendFailed, Progress
from localvolume.host.tree.deletion import (
    Deleted,
    DeletionIncomplete,
    DeletionStopped,
    NestedMount,
    delete_contents,
)
from localvolume.host.tree.erasing import Eraser, Stopped
from localvolume.host.tree.trees import opened, sync_directory


def delete_directory(
    pool: int,
    where: str,
    name: str,
    *,
    overwrite: bool,
    stop: threading.Event,
    files_per_second: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Delete the directory `name` in the directory `where` below the pool.

    Raises FileNotFoundError if there is none, BackendFailed if it was stopped or something
    cannot be removed (call again to continue), OSError.
    """

    def told(deleted: Deleted) -> None:
        if progress is not None:
            progress(deleted.files + deleted.directories, deleted.bytes)

    eraser = Eraser(overwrite=overwrite, per_second=files_per_second, stop=stop)
    plain = not overwrite and not files_per_second
    with opened(pool, where) as parent:
        with opened(parent, name) as fd:
            try:
                delete_contents(
                    fd,
                    progress=told,
                    stop=stop,
                    workers=1 if files_per_second else 4,
                    unlink=None if plain else eraser,
                    # The record goes last, and the filesystem's other tenants need not wait for us.
                    durable=False,
                )
                # On ext4 it is kept as the filesystem's own, but here it is a tenant's.
                with suppress(FileNotFoundError):
                    os.rmdir("lost+found", dir_fd=fd)
            except (DeletionStopped, Stopped) as stopped:
                raise BackendFailed(f"deleting {name} was stopped; it goes on later") from stopped
            except (DeletionIncomplete, NestedMount) as error:
                raise BackendFailed(f"deleting {name}: {error}") from error
        os.rmdir(name, dir_fd=parent)
        sync_directory(parent)
