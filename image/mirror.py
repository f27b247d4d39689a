"""Debian's packages, from where this machine's apt has them."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from image.running import BuildFailed, run

SUITE = "bookworm"
#: The same, as a number.
DEBIAN = "12"


def extract(wanted: list[str], suite: str, root: Path, lines: list[str]) -> None:
    """Packages and what they need, from lines of sources.list; what Debian does not sign is not
    asked. Raises BuildFailed."""
    argv = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"]
    argv += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--skip=cleanup/apt/cache"]
    argv += [f"--aptopt={line}" for line in _ways()]
    run([*argv, f"--include={','.join(wanted)}", suite, root, *lines])


def sources() -> list[str]:
    """Where this machine's apt has the suite, as lines of sources.list; raises BuildFailed."""
    if found := _listed([]):
        return found
    # Nothing is known of what was never fetched.
    with _aside() as options:
        found = _listed(options)
    if not found:
        raise BuildFailed(f"apt here has no packages of Debian {SUITE}: build where it has")
    return found


def offered(names: list[str]) -> dict[str, list[str]]:
    """The versions that mirrors of the suite have now, by package; raises BuildFailed."""
    known = [line.split()[1:3] for line in sources()]
    places = tuple(f"{uri.rstrip('/')} {release}/main " for uri, release in known)
    with _aside() as options:
        found = run(["apt-cache", *options, "madison", *names])
    versions: dict[str, list[str]] = {}
    for line in found.splitlines():
        name, version, place = (word.strip() for word in line.split("|"))
        if place.startswith(places) and not place.endswith(" Sources"):
            versions.setdefault(name, []).append(version)
    return versions


def _ways() -> list[str]:
    """How this machine's apt reaches mirrors: through which proxy, trusting whom."""
    lines = run(["apt-config", "dump"]).splitlines()
    ways = ("Acquire::http::", "Acquire::https::", "Acquire::Check-")
    return ['Acquire::Retries "3";', *(one for one in lines if one.startswith(ways))]


@contextlib.contextmanager
def _aside() -> Iterator[list[str]]:
    """Options for apt, by which it knows what its mirrors have now. It changes nothing here."""
    with tempfile.TemporaryDirectory() as directory:
        places = {"Dir::State::Lists": "lists", "Dir::Cache": "cache"}
        aside = [f"-o{option}={directory}/{name}" for option, name in places.items()]
        for name in ("lists/partial", "cache/archives/partial"):
            Path(directory, name).mkdir(parents=True)
        run(["apt-get", "update", "-oAcquire::Languages=none", *aside])
        yield aside


def _listed(options: list[str]) -> list[str]:
    what = "$(CREATED_BY)|$(ORIGIN)|$(CODENAME)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    lines = run(["apt-get", "indextargets", *options, "--format", what]).splitlines()
    wanted = (f"Packages|Debian|{SUITE}|", f"Packages|Debian|{SUITE}-")
    chosen = {line.split("|", 3)[3] for line in lines if line.startswith(wanted)}
    return sorted(line for line in chosen if line.endswith(" main"))
