"""A mirror of a few packages that have nothing in them, for what builds from mirrors."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from image.mirror import SUITE
from image.running import run


@dataclass(frozen=True)
class Empty:
    """A package that is its name, and what it needs."""

    name: str
    version: str
    needs: str = ""


def mirror(place: Path, packages: list[Empty]) -> list[str]:
    """Lay a mirror out below `place`; returns its lines of sources.list.

    As https://wiki.debian.org/DebianRepository/Format has it. Nobody signs it.
    """
    architecture = run(["dpkg", "--print-architecture"]).strip()
    index = place / f"dists/{SUITE}/main/binary-{architecture}/Packages"
    index.parent.mkdir(parents=True)
    index.write_text("\n".join(_archived(place, package) for package in packages))
    (place / f"dists/{SUITE}/Release").write_text(
        f"Suite: {SUITE}\nCodename: {SUITE}\nComponents: main\nArchitectures: {architecture}\n"
        f"SHA256:\n {_sum(index)} {index.stat().st_size} main/{index.parent.name}/{index.name}\n"
    )
    # Of `file:` apt keeps no copy in its cache.
    return [f"deb [trusted=yes] copy:{place} {SUITE} main"]


def _archived(place: Path, package: Empty) -> str:
    """What a list says of the package, whose archive is made."""
    archive = place / f"{package.name}.deb"
    tree = place / "tree" / package.name / "DEBIAN"
    tree.mkdir(parents=True)
    said = f"Package: {package.name}\nVersion: {package.version}\nArchitecture: all\n"
    said += f"Depends: {package.needs}\n" if package.needs else ""
    (tree / "control").write_text(f"{said}Maintainer: nobody\nDescription: nothing\n")
    run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree.parent, archive])
    size = archive.stat().st_size
    return f"{said}Filename: {archive.name}\nSize: {size}\nSHA256: {_sum(archive)}\n"


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
