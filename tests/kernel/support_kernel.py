"""The kernel that guests run: User-mode Linux of this machine, or a newer one from the cache.

Since Linux 6.16 its processes reach it by seccomp(2) instead of ptrace(2), and a command in a guest
takes half the time. fetch.py puts one into the cache; where there is none, the machine's serves.
"""

from dataclasses import dataclass
from pathlib import Path

from image.running import CACHE

#: Where Debian's user-mode-linux puts them, below the kernel's version.
MODULES = Path("/usr/lib/uml/modules")
#: A link to the one that was fetched, and has been seen to work.
CACHED = CACHE.with_name("guest-kernel") / "current"


@dataclass(frozen=True)
class Kernel:
    program: str
    modules: Path
    options: tuple[str, ...] = ()
    """Words of its command line."""


OWN = Kernel("linux.uml", MODULES)


def below(root: Path) -> Kernel:
    """The newer one, whose package was extracted there."""
    program = root / "usr/bin/linux.uml"
    return Kernel(str(program), root / MODULES.relative_to("/"), ("seccomp=on",))


def kernel() -> Kernel:
    """The one to start guests with."""
    return below(CACHED.resolve()) if CACHED.exists() else OWN


def missing() -> str | None:
    """None where a guest can be started, as far as the programs do not say; else what helps."""
    if not MODULES.is_dir():
        return f"the guest kernel has no modules in {MODULES}: install user-mode-linux, of Debian"
    return unfit(kernel())


def unfit(one: Kernel, processor: Path = Path("/proc/cpuinfo")) -> str | None:
    """None where the kernel runs on this machine's processor (proc(5)); else what helps."""
    if one == OWN and "amx_tile" in processor.read_text().split():
        # It has no room for the registers (until Linux 6.11), and panics before its first process.
        return f"{one.program} may not run on processors with AMX: `make guest-kernel` fetches one"
    return None
