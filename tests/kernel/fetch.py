"""python -m tests.kernel.fetch: put a newer kernel for guests into the cache.

It is User-mode Linux of Debian's testing release, with the C library that it was linked with, from
where this machine's apt has packages. Nothing is installed, and it is taken only once a guest has
run with it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from image import architectures
from image.mirror import SUITE, extract, sources
from image.running import BuildFailed, run
from tests.kernel.support_guest import Guest, GuestFailed
from tests.kernel.support_kernel import CACHED, Kernel, below

#: Of Debian: it has what is not released yet.
_TESTING = "forky"
_SECONDS = 120.0


def fetch() -> Kernel:
    """The newer kernel, from the cache if it is there; raises BuildFailed."""
    if not CACHED.exists():
        CACHED.parent.mkdir(parents=True, exist_ok=True)
        root = Path(tempfile.mkdtemp(prefix=f"{_TESTING}-", dir=CACHED.parent))
        try:
            _make(root)
            prove(below(root), "lvm", "version")
            # In place at once, whoever else does the same.
            link = root.with_suffix(".new")
            link.symlink_to(root.name)
            os.replace(link, CACHED)
        except BaseException:
            shutil.rmtree(root)
            raise
    return below(CACHED.resolve())


def _make(root: Path) -> None:
    wanted = f" {SUITE} "
    found = [line.replace(wanted, f" {_TESTING} ") for line in sources() if wanted in line]
    extract(["user-mode-linux", "patchelf"], _TESTING, root, found, architectures.here())
    # It is started on this machine, whose C library may be older than it needs.
    patchelf = ("chroot", root, "patchelf")
    libraries = ":".join(str(path.parent) for path in root.glob("usr/lib/*/libc.so.6"))
    interpreter = run([*patchelf, "--print-interpreter", "/usr/bin/linux.uml"]).strip()
    here = (f"{root}{interpreter}", "--set-rpath", libraries)
    run([*patchelf, "--set-interpreter", *here, "/usr/bin/linux.uml"])
    shutil.rmtree(root / "usr/share")


def prove(kernel: Kernel, *command: str) -> None:
    """Run a command in it; raises BuildFailed where that fails."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            with Guest(command, Path(directory), kernel=kernel) as guest:
                code = guest.wait(_SECONDS)
        except GuestFailed as failed:
            raise BuildFailed(f"it does not run here: {failed}") from failed
    if code != 0:
        raise BuildFailed(f"{command[0]} ended with {code} in it")


def main() -> int:
    try:
        print(fetch().program)
    except (BuildFailed, OSError) as problem:
        print(f"guests run the kernel of this machine's own release: {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
