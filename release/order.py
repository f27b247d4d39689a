"""What a release is of and for whom, or why there can be none."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from image import provenance
from image.application import NAME, client, version
from image.architectures import here
from image.running import BuildFailed, run

CHART = f"charts/{NAME}/Chart.yaml"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_REGISTRY = re.compile(r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)+")
_SOURCE = re.compile(r"https://[A-Za-z0-9.-]+(/[A-Za-z0-9._-]+)+")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_LINKS = re.compile(r"^\[[^]]+\]: .*\n?", re.MULTILINE)


@dataclass(frozen=True)
class Order:
    """One release: of which version and commit, and under which names others find it."""

    version: str
    commit: str
    epoch: int
    """When the commit was made, in seconds: the time of every file that needs to have one."""
    registry: str
    """Below which image and chart are pushed, as in `ghcr.io/somebody`."""
    source: str
    """The repository's address, which also has the files of the release."""
    builder: provenance.Builder
    artifacthub: str = ""
    """What Artifact Hub knows the chart's repository by, once it is registered there."""

    @property
    def image(self) -> str:
        return f"{self.registry}/{NAME}"

    @property
    def charts(self) -> str:
        return f"{self.registry}/charts"

    def named(self, rest: str) -> str:
        """The name of a file of this release."""
        return f"{NAME}-{self.version}{rest}"

    def download(self, name: str) -> str:
        """Where a file of this release is downloaded from."""
        return f"{self.source}/releases/download/v{self.version}/{name}"


def order(tree: Path, registry: str, source: str, builder: str, artifacthub: str = "") -> Order:
    """The release of `tree`, which is as it was committed; raises BuildFailed."""
    who = provenance.named(builder)
    if not _REGISTRY.fullmatch(registry):
        raise BuildFailed(f"REGISTRY is a host and a path, as in ghcr.io/somebody: {registry!r}")
    if not _SOURCE.fullmatch(source):
        raise BuildFailed(f"SOURCE is the repository's https address, with no / last: {source!r}")
    if artifacthub and not _ID.fullmatch(artifacthub):
        raise BuildFailed(f"ARTIFACTHUB is the id of a repository there: {artifacthub!r}")
    agreed = agreement(versions(tree))
    notes((tree / "CHANGELOG.md").read_text(), agreed)
    commit = provenance.commit(tree)
    epoch = int(run(["git", "-C", tree, "show", "--no-patch", "--format=%ct", commit]))
    return Order(agreed, commit, epoch, registry, source, who, artifacthub)


def versions(tree: Path) -> dict[str, str]:
    """The versions that a tree says it is of, by where it says so."""
    chart = yaml.safe_load((tree / CHART).read_text())
    return {
        "pyproject.toml": version(tree),
        f"version of {CHART}": str(chart["version"]),
        f"appVersion of {CHART}": str(chart["appVersion"]),
    }


def agreement(said: Mapping[str, str]) -> str:
    """The one version that is said everywhere; raises BuildFailed."""
    if len(set(said.values())) > 1:
        lines = (f"  {number} by {place}" for place, number in said.items())
        raise BuildFailed("\n".join(["the tree is not of one version:", *lines]))
    (agreed,) = set(said.values())
    if not _VERSION.fullmatch(agreed):
        raise BuildFailed(f"a version is three numbers, as in 1.2.3: {agreed!r}")
    return agreed


def says_version(tree: Path, wanted: str) -> None:
    """Raises BuildFailed unless the FlexVolume client that was built says it is of `wanted`."""
    program = client(tree, here())
    said = json.loads(run([program, "version"]))["message"]
    agreement({"pyproject.toml": wanted, str(program.relative_to(tree)): said})


def notes(changelog: str, wanted: str) -> str:
    """What the changelog has of a version, without the heading; raises BuildFailed."""
    heading = re.compile(rf"\[{re.escape(wanted)}\] - \d{{4}}-\d{{2}}-\d{{2}}")
    parts = _HEADING.split(changelog)
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        if heading.fullmatch(title.strip()):
            if not (kept := _LINKS.sub("", text).strip()):
                raise BuildFailed(f"CHANGELOG.md says nothing of {wanted}: write what changed")
            return f"{kept}\n"
    raise BuildFailed(
        f"CHANGELOG.md has no section `## [{wanted}] - YYYY-MM-DD`: name what is released so"
    )
