"""Debian's packages, from the mirrors that this machine's apt has."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from image.running import BuildFailed, run

SUITE = "trixie"
#: The same, as a number.
DEBIAN = "13"
#: Whose keys the suite is signed with, where this machine has them in a place of their own.
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_CODENAME = re.compile(r"[a-z]+(-updates|-security|)")


def extract(wanted: list[str], suite: str, root: Path, lines: list[str], architecture: str) -> None:
    """Packages and what they need, from lines of sources.list; what Debian does not sign is not
    asked. No program of theirs is run, so any architecture will do. Raises BuildFailed."""
    argv = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"]
    argv.append(f"--architectures={architecture}")
    argv += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--skip=cleanup/apt/cache"]
    argv += [f"--aptopt={line}" for line in _ways()]
    run([*argv, f"--include={','.join(wanted)}", suite, root, *lines])


def sources() -> list[str]:
    """The suite on the mirrors from which this machine's apt has its own Debian, whichever that is,
    as lines of sources.list; raises BuildFailed."""
    if found := _listed([]):
        return found
    # Nothing is known of what was never fetched.
    with _aside() as options:
        found = _listed(options)
    if not found:
        raise BuildFailed("apt here has no packages of Debian: build where it has")
    return found


def offered(names: list[str], lines: list[str], architecture: str) -> dict[str, list[str]]:
    """The versions that those lines' mirrors have now, by package; raises BuildFailed."""
    with _aside(lines, architecture) as options:
        found = run(["apt-cache", *options, "madison", *names])
    versions: dict[str, list[str]] = {}
    for line in found.splitlines():
        name, version, place = (word.strip() for word in line.split("|"))
        if not place.endswith(" Sources"):
            versions.setdefault(name, []).append(version)
    return versions


def _ways() -> list[str]:
    """How this machine's apt reaches mirrors: through which proxy, trusting whom."""
    lines = run(["apt-config", "dump"]).splitlines()
    ways = ("Acquire::http::", "Acquire::https::", "Acquire::Check-")
    return ['Acquire::Retries "3";', *(one for one in lines if one.startswith(ways))]


@contextlib.contextmanager
def _aside(lines: list[str] | None = None, architecture: str | None = None) -> Iterator[list[str]]:
    """Options for apt, by which it knows what mirrors have now: its own, or those of `lines`. It
    changes nothing here."""
    with tempfile.TemporaryDirectory() as directory:
        places = {"Dir::State::Lists": "lists", "Dir::Cache": "cache"}
        if lines is not None:
            Path(directory, "sources.list").write_text("".join(f"{line}\n" for line in lines))
            Path(directory, "parts").mkdir()
            places |= {"Dir::Etc::SourceList": "sources.list", "Dir::Etc::SourceParts": "parts"}
        aside = [f"-o{option}={directory}/{name}" for option, name in places.items()]
        if architecture is not None:
            # The list of all takes the place of the one and of what dpkg was told of.
            aside += [f"-oAPT::Architecture={architecture}", f"-oAPT::Architectures={architecture}"]
        for name in ("lists/partial", "cache/archives/partial"):
            Path(directory, name).mkdir(parents=True)
        run(["apt-get", "update", "-oAcquire::Languages=none", *aside])
        yield aside


def _listed(options: list[str]) -> list[str]:
    what = "$(CREATED_BY)|$(ORIGIN)|$(COMPONENT)|$(CODENAME)|$(REPO_URI)"
    lines = run(["apt-get", "indextargets", *options, "--format", what]).splitlines()
    signed = f"[signed-by={_KEYS}] " if _KEYS.exists() else ""
    found = set()
    for line in lines:
        *of, codename, uri = line.split("|", 4)
        # Of a release's other parts (backports, proposed updates) none is asked.
        if of == ["Packages", "Debian", "main"] and (part := _CODENAME.fullmatch(codename)):
            found.add(f"deb {signed}{uri} {SUITE}{part[1]} main")
    return sorted(found)
