"""`make bench`: all measurements, or those named; `python -m benchmarks publishing zeroing`."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import (
    cluster,
    csi,
    csicalls,
    csimemory,
    csirestores,
    csisnapshots,
    dynamic,
    flexclient,
    measures,
)
from benchmarks.subject import AS_IN_ITS_IMAGE
from benchmarks.table import Figure, render
from localvolume_lab.controlplane import ControlPlane

# Only where objects must not be rewritten by controllers is the controller-manager left out.
WITH_PLANE = {
    "publishing": (measures.publishing, True),
    "cold-start": (measures.cold_start, True),
    "reuse": (measures.reuse, True),
    "foreign": (measures.foreign, False),
    "controller": (cluster.controller, False),
    "dynamic": (dynamic.dynamic, True),
    "csi-claims": (csi.claims, True),
    "csi-calls": (csicalls.calls, True),
    "csi-snapshots": (csisnapshots.snapshots, True),
    "csi-restores": (csirestores.restores, True),
    "csi-memory": (csimemory.memory, True),
}
WITH_SCHEDULER = {"dynamic"}
WITHOUT_PLANE = {"zeroing": measures.zeroing, "flexclient": flexclient.flexclient}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="publishing, cold-start, …")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a goal is missed")
    arguments = parser.parse_args()
    known = [*WITH_PLANE, *WITHOUT_PLANE]
    names = arguments.names or known
    if unknown := set(names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    if os.geteuid() != 0:
        print("make bench mounts filesystems and attaches loop devices: run it as root")
        return 2
    if os.environ.get("LOCALVOLUME_BENCH_NAMESPACE") is None:
        # Whatever happens to us, no mount is left behind.
        environment = {**os.environ, "LOCALVOLUME_BENCH_NAMESPACE": "1"}
        argv = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m"]
        os.execvpe(argv[0], [*argv, "benchmarks", *sys.argv[1:]], environment)
    # So that a loop device and the processes are cleared away then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures: list[Figure] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="localvolume-bench-") as directory:
        for name in names:
            print(f"measuring: {name} …", file=sys.stderr, flush=True)
            figures += _measure(name, Path(directory))
    print(render(figures))
    print(f"\n{_circumstances()}; measured in {time.monotonic() - began:.0f} s")
    return 1 if arguments.strict and not all(figure.met for figure in figures) else 0


def _measure(name: str, directory: Path) -> list[Figure]:
    if name in WITHOUT_PLANE:
        return asyncio.run(WITHOUT_PLANE[name](directory))
    measure, controllers = WITH_PLANE[name]
    with ControlPlane(controllers=controllers, scheduler=name in WITH_SCHEDULER) as plane:
        return asyncio.run(measure(plane, directory))


def _circumstances() -> str:
    """What the figures depend on, in one line."""
    started = " ".join(f"{name}={value}" for name, value in AS_IN_ITS_IMAGE.items())
    load = os.getloadavg()[0]
    python = platform.python_version()
    return f"{os.cpu_count()} CPUs, load {load:.1f}, Python {python}; started with {started}"


if __name__ == "__main__":
    sys.exit(main())
