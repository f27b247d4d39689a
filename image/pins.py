"""The distribution's packages as they are written down, and how others differ from them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from image.running import BuildFailed

_LINE = re.compile(r"([a-z0-9][a-z0-9+.-]+)=([A-Za-z0-9.+:~-]+) sha256:([0-9a-f]{64})")


@dataclass(frozen=True, order=True)
class Package:
    """One as the mirror has it: `sha256` is of its archive."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}={self.version} sha256:{self.sha256}"

    @property
    def asked_for(self) -> str:
        """It, in the words of apt."""
        return f"{self.name}={self.version}"


def written(packages: Sequence[Package]) -> str:
    """The text of a record, a line each."""
    return "".join(f"{package}\n" for package in sorted(packages))


def read(text: str) -> list[Package]:
    """What a record says; raises BuildFailed."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _LINE.fullmatch(line)) is None:
            raise BuildFailed(f"line {number} is not `name=version sha256:digest`: {line}")
        found.append(Package(*match.groups()))
    if len({package.name for package in found}) < len(found) or not found:
        raise BuildFailed("a record has each package once, and has some")
    return found


def gone(recorded: Sequence[Package], offered: Mapping[str, Sequence[str]]) -> list[str]:
    """Each that is not among the versions which are offered by name, and what is."""
    return [
        f"{package.name}: {package.version} is recorded, and the mirror has "
        + (", ".join(offered.get(package.name, ())) or "none")
        for package in recorded
        if package.version not in offered.get(package.name, ())
    ]


def differences(recorded: Sequence[Package], found: Sequence[Package]) -> list[str]:
    """What is not as it was recorded, one package a line."""
    before = {package.name: package.version for package in recorded}
    after = {package.name: package.version for package in found}
    said = [f"{name}: {before[name]} is recorded, and not there" for name in before.keys() - after]
    said += [f"{name}: {after[name]} is there, and not recorded" for name in after.keys() - before]
    said += [
        f"{name}: {before[name]} is recorded, and {after[name]} is there"
        for name in before.keys() & after
        if before[name] != after[name]
    ]
    return sorted(said)


def changed(recorded: Sequence[Package], found: Sequence[Package]) -> list[str]:
    """Those of a recorded version whose archive is another one: no mirror of Debian has that."""
    digests = {package.asked_for: package.sha256 for package in recorded}
    return [
        f"{package.asked_for}: sha256:{digests[package.asked_for]} is recorded, "
        f"and sha256:{package.sha256} came"
        for package in sorted(found)
        if digests.get(package.asked_for, package.sha256) != package.sha256
    ]
