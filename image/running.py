"""Programs that the build of the image runs: to their end, or with their last words."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

#: Where what takes long to make is kept, by what it was made of.
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "local-volume-provisioner"
    / "image"
)

_KEPT_SECONDS = 14 * 86400


class BuildFailed(Exception):
    """The image cannot be built here; the message says what failed, or what to install."""


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    seconds: float = 300.0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Standard output of a program that succeeds within `seconds`; raises BuildFailed."""
    words = [os.fspath(word) for word in argv]
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            words,
            env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise BuildFailed(f"there is no {words[0]}: install it") from error
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{words[0]} took longer than {seconds:.0f} s") from error
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-20:])
        raise BuildFailed(f"{words[0]} ended with {done.returncode}:\n{last}")
    return done.stdout


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """The cache for one build at a time: what another makes just now is waited for."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def used(path: Path) -> Path:
    """`path` of the cache, marked as used now; its likes that nobody used for long are removed."""
    os.utime(path)
    oldest = path.stat().st_mtime - _KEPT_SECONDS
    for other in CACHE.glob(f"{path.name.partition('-')[0]}-*"):
        if other.stat().st_mtime < oldest:
            remove(CACHE, other.name)
    return path


def remove(root: Path, pattern: str) -> None:
    """All that matches below `root`, directories with what is in them."""
    for path in sorted(root.glob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
