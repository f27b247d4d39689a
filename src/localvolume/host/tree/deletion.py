"""Empty a directory: fast, whatever is in it, and without touching anything outside it.

What makes it safe against a tenant who still has the volume open, or who prepared it:
- every step is relative to a descriptor, and opens through ``beneath``: a directory that becomes a
  symbolic link is never entered, nor is another mount, not even one of the same filesystem;
- removing is by name in a directory that is held open, so it cannot reach anything elsewhere;
- nothing but directories is ever opened, except files to clear the immutable flag.
"""

import errno
import itertools
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from localvolume.host.filesystem.inodeflags import strip_attributes, unlock, unlock_subvolume
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import BTRFS_MAGIC, EXT_MAGIC, closed_after, fstatfs, syncfs
from localvolume.host.tree.beneath import LeadsOutside
from localvolume.host.tree.removal import (
    DIRECTORY_FLAGS,
    Deleted,
    DeletionIncomplete,
    DeletionStopped,
    Directory,
    NestedMount,
    display,
    remove_name,
)

__all__ = [
    "Deleted",
    "DeletionIncomplete",
    "DeletionStopped",
    "NestedMount",
    "delete_contents",
]

#: Errors listed, and errors after which there is no point in going on.
LISTED, MOST_ERRORS = 20, 1000
#: Passes over a directory that change nothing before it counts as being filled by somebody.
IDLE_PASSES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of one run, whatever the tree."""

    batch: int = 1024
    """Subdirectories of one directory on the stack."""

    deepest: int = 256
    """Levels below the top beyond which subdirectories are moved up."""

    kept_open: int = 128
    """Descriptors kept open for directories whose subdirectories are being worked on."""

    report: float = 0.3
    """Seconds between reports of progress."""


def delete_contents(
    directory_fd: int,
    *,
    progress: Callable[[Deleted], None] | None = None,
    stop: threading.Event | None = None,
    workers: int = 4,
    unlink: Callable[..., None] | None = None,
    durable: bool = True,
    bounds: Bounds | None = None,
) -> Deleted:
    """Remove everything inside an open directory, and wait until that is on disk.

    The directory itself stays, with its mode and owner but without ``user.*`` attributes, access
    lists and the immutable flag. On ext*, its ``lost+found`` stays too, emptied. ``progress`` is
    called in this thread about three times a second. Blocks; a call with a deadline belongs in a
    worker, and setting ``stop`` ends it within milliseconds of the disk's next answer. ``unlink``
    removes each name that is not a directory; it is called like os.unlink, in several threads.
    Without ``durable``, it does not wait for the disk at the end. ``bounds`` limits the run.

    Raises ``NestedMount`` (before anything is removed, if it was mounted before),
    ``DeletionStopped``, ``DeletionIncomplete``, OSError.
    """
    # A descriptor of our own: reading moves the position, and theirs may be open with O_PATH.
    with closed_after(os.open(".", DIRECTORY_FLAGS, dir_fd=directory_fd)) as fd:
        top = Directory(os.readlink(f"/proc/self/fd/{fd}"), None, stays=True)
        top.fd = fd
        _refuse_nested_mounts(top.name)
        if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            raise DeletionIncomplete(["the filesystem is mounted read-only"], Deleted())
        try:
            unlock(fd)
            strip_attributes(fd)
        except OSError as error:
            reason = f"the directory's own flags and attributes: {error.strerror}"
            raise DeletionIncomplete([reason], Deleted()) from error
        deleted = Emptying(top, stop or threading.Event(), unlink, bounds).run(workers, progress)
        if not durable:
            return deleted
        try:
            # Otherwise a power cut may bring files back when the volume is already somebody else's.
            syncfs(fd)
        except OSError as error:
            raise DeletionIncomplete([f"writing to disk: {error.strerror}"], deleted) from error
        return deleted


def _refuse_nested_mounts(base: str) -> None:
    inside = base.rstrip("/") + "/"
    # This includes mounts that others hide now.
    for mount in read_mount_table():
        if mount.mount_point.startswith(inside):
            raise NestedMount(mount.mount_point)


class _Count:
    """One thread's own count. The reader adds them up, so that nobody waits for a lock."""

    __slots__ = ("bytes", "directories", "files")

    def __init__(self) -> None:
        self.files = self.directories = self.bytes = 0


class _Over(Exception):
    """The run has ended elsewhere: nothing is left to report."""


class _Stopped(Exception):
    """The caller's stop event is set."""


class Emptying:
    """One run over one directory tree: threads take directories from a shared stack and empty them.

    A directory is read in passes: everything but directories is unlinked on the way, up to 1,024
    subdirectories are put on the stack, and when these are done it is read again, until nothing is
    left and it can be removed. So memory does not grow with the number of entries. It does not grow
    with depth either: what lies too deep is first moved up, beside the top's own entries.
    """

    def __init__(
        self,
        top: Directory,
        stop: threading.Event,
        unlink: Callable[..., None] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._bounds = bounds or Bounds()
        #: Removes one name that is not a directory; called like os.unlink, from several threads.
        self._remove = unlink or os.unlink
        self._top = top
        self._stop = stop
        magic = fstatfs(top.fd).magic
        self._keep_lost_and_found = magic == EXT_MAGIC
        self._btrfs = magic == BTRFS_MAGIC
        self._changed = threading.Condition()
        self._stack = [top]
        self._over = False
        self._fatal: BaseException | None = None
        self._errors: list[str] = []
        self._error_count = 0
        self._kept_open: set[int] = set()
        self._counts: list[_Count] = []
        self._moved = itertools.count()
        # Random, so that a tenant cannot guess the name and put something there.
        self._token = secrets.token_hex(8)

    # The run, and the threads

    def run(self, workers: int, progress: Callable[[Deleted], None] | None) -> Deleted:
        """Work until done; the calling thread only waits and reports."""
        self._counts = [_Count() for _ in range(max(1, workers))]
        threads = [
            threading.Thread(target=self._work, args=(count,), daemon=True)
            for count in self._counts
        ]
        reported = Deleted()
        try:
            for thread in threads:
                thread.start()
            while not self._wait(self._bounds.report):
                if progress is not None and (now := self._deleted()) != reported:
                    reported = now
                    progress(now)
            if self._stop.is_set():
                self._end(_Stopped())
        finally:
            self._end()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            for fd in self._kept_open:
                os.close(fd)
        deleted = self._deleted()
        if isinstance(self._fatal, _Stopped):
            raise DeletionStopped(deleted)
        if self._fatal is not None:
            raise self._fatal
        if self._error_count:
            more = self._error_count - len(self._errors)
            raise DeletionIncomplete(self._errors, deleted, more)
        if progress is not None and deleted != reported:
            progress(deleted)
        return deleted

    def _wait(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._over or self._stop.is_set(), seconds)

    def _deleted(self) -> Deleted:
        counts = self._counts
        return Deleted(
            sum(one.files for one in counts),
            sum(one.directories for one in counts),
            sum(one.bytes for one in counts),
        )

    def _end(self, fatal: BaseException | None = None) -> None:
        with self._changed:
            if not self._over:
                self._fatal = fatal
            self._over = True
            self._changed.notify_all()

    def _work(self, count: _Count) -> None:
        try:
            while True:
                with self._changed:
                    while not self._stack and not self._over:
                        self._changed.wait()
                    if self._over:
                        return
                    directory = self._stack.pop()
                self._read(directory, count)
        except _Over:
            pass
        except BaseException as error:  # noqa: BLE001 - run() raises it again
            self._end(error)

    def _check(self) -> None:
        if self._over:
            raise _Over
        if self._stop.is_set():
            raise _Stopped

    # One directory

    def _read(self, directory: Directory, count: _Count) -> None:
        """Read a directory once: put subdirectories on the stack, and unlink everything else."""
        self._check()
        try:
            fd, ours = self._open(directory)
        except OSError as error:
            self._no_way_in(directory, error)
            self._finish(directory, count, removed=True)
            return
        try:
            directory.idle = 0 if directory.progressed else directory.idle + 1
            directory.progressed = directory.again = False
            if directory.idle > IDLE_PASSES:
                self._fail(directory, "", "something keeps changing it")
                below = []
            else:
                below = self._unlink_files(directory, fd, count)
            if directory.stays and directory.progressed:
                # Other directories are proved empty by rmdir; this one, by reading it again.
                directory.again = True
            moved: list[Directory] = []
            if below and directory.depth >= self._bounds.deepest:
                below, moved = self._move_up(fd, below)
            with self._changed:
                self._top.pending += len(moved)
                directory.pending += len(below)
                if below and ours and len(self._kept_open) < self._bounds.kept_open:
                    # Threads that work below open their directories from here.
                    self._kept_open.add(fd)
                    directory.fd, ours = fd, False
                # Pushed first, so popped last: it is not read again before the others are done.
                if not directory.pending and directory.again:
                    self._stack.append(directory)
                self._stack += [*moved, *below]
                self._changed.notify(len(below) + len(moved) + 1)
                finished = not directory.pending and not directory.again
        finally:
            if ours:
                os.close(fd)
        if finished:
            self._finish(directory, count)

    def _unlink_files(self, directory: Directory, fd: int, count: _Count) -> list[Directory]:
        below: list[Directory] = []
        skip = directory.skip or ()
        with os.scandir(fd) as entries:
            while True:
                self._check()
                try:
                    entry = next(entries, None)
                except OSError as error:
                    self._fail(directory, "", error.strerror)
                    break
                if entry is None:
                    break
                name = entry.name
                if name in skip:
                    continue
                if not self._unlink(directory, fd, entry, count):
                    stays = (
                        directory is self._top
                        and self._keep_lost_and_found
                        and name == "lost+found"
                    )
                    below.append(Directory(name, directory, stays=stays))
                    if len(below) == self._bounds.batch:
                        directory.again = True
                        break
        return below

    def _unlink(
        self, directory: Directory, fd: int, entry: "os.DirEntry[str]", count: _Count
    ) -> bool:
        """Unlink one name; false when it is a directory."""
        name = entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                return False
            found = entry.stat(follow_symlinks=False)
            remove_name(directory, fd, name, self._remove)
        except FileNotFoundError:
            directory.progressed = True
        except IsADirectoryError:
            return False
        except OSError as error:
            self._fail(directory, name, error.strerror)
        else:
            count.files += 1
            if found.st_nlink == 1:
                count.bytes += found.st_blocks * 512
            directory.progressed = True
        return True

    def _move_up(self, fd: int, below: list[Directory]) -> tuple[list[Directory], list[Directory]]:
        """Move subdirectories to the top, so that no depth needs memory or long paths.

        Returns those that stay where they are (another quota project, no room), and those moved.
        """
        rest, moved = [], []
        for directory in below:
            name = f".localvolume-deleting-{self._token}-{next(self._moved)}"
            try:
                os.rename(directory.name, name, src_dir_fd=fd, dst_dir_fd=self._top.fd)
            except OSError:
                rest.append(directory)
            else:
                moved.append(Directory(name, self._top))
        return rest, moved

    def _open(self, directory: Directory) -> tuple[int, bool]:
        """Open a directory and make it ready for removing from it."""
        fd, ours = directory.open()
        try:
            if ours and self._btrfs:
                unlock_subvolume(fd)
            if ours and directory.stays:
                unlock(fd)
                strip_attributes(fd)
        except BaseException:
            if ours:
                os.close(fd)
            raise
        return fd, ours

    def _no_way_in(self, directory: Directory, error: OSError) -> None:
        """Note what became of a directory that could not be opened."""
        parent = directory.parent
        assert parent is not None  # noqa: S101 - the top is open from the beginning
        if isinstance(error, LeadsOutside) and error.errno == errno.EXDEV:
            raise NestedMount(directory.path()) from None
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            # Gone, or something else by now: reading the parent again shows what.
            parent.again = True
        else:
            self._fail(parent, directory.name, error.strerror)

    # Upwards

    def _finish(self, directory: Directory, count: _Count, *, removed: bool = False) -> None:
        """Remove a directory found empty, and then each parent in which it was the last."""
        while True:
            parent = directory.parent
            if parent is None:
                self._end()
                return
            if not removed and not self._rmdir(directory, parent, count):
                with self._changed:
                    self._stack.append(directory)
                    self._changed.notify()
                return
            removed = False
            with self._changed:
                if directory.fd >= 0:
                    self._kept_open.discard(directory.fd)
                    os.close(directory.fd)
                    directory.fd = -1
                parent.pending -= 1
                if parent.pending:
                    return
                if parent.again or parent.stays:
                    self._stack.append(parent)
                    self._changed.notify()
                    return
            directory = parent

    def _rmdir(self, directory: Directory, parent: Directory, count: _Count) -> bool:
        """Remove one empty directory; false when it must be read again."""
        if directory.failed or directory.stays:
            with self._changed:
                parent.leave(directory.name)
                parent.failed = parent.failed or directory.failed
            return True
        ours, fd = False, -1
        try:
            fd, ours = self._open(parent)
            remove_name(parent, fd, directory.name, os.rmdir)
        except (FileNotFoundError, NotADirectoryError, LeadsOutside):
            parent.again = True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            with self._changed:
                self._fail(parent, directory.name, error.strerror)
        else:
            count.directories += 1
            parent.progressed = True
        finally:
            if ours:
                os.close(fd)
        return True

    # What went wrong

    def _fail(self, directory: Directory, name: str, reason: str | None) -> None:
        """Note that something stays; end the run when there is no point in going on."""
        with self._changed:
            directory.failed = True
            if name:
                directory.leave(name)
            self._error_count += 1
            if len(self._errors) < LISTED:
                self._errors.append(f"{display(directory.path(name))}: {reason}")
            if self._error_count >= MOST_ERRORS:
                self._end()
                raise _Over
