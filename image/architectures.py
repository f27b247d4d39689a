"""The processors that an image can be built for, by the names that Debian and Go have for them."""

from image.running import BuildFailed, run

#: What Python's wheels and the kernel call each.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def here() -> str:
    """This machine's."""
    return run(["dpkg", "--print-architecture"]).strip()


def machine(architecture: str) -> str:
    """The kernel's name of it; raises BuildFailed."""
    if (name := MACHINES.get(architecture)) is None:
        raise BuildFailed(f"no image is built for {architecture}: only for {', '.join(MACHINES)}")
    return name
