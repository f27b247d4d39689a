"""Where an image is from, as others can read it: in-toto's statement of a provenance of SLSA.

https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1. No time and no chance is in it:
equal images of equal commits have equal statements.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from image import base, pins
from image.build import Built
from image.pins import Package
from image.running import BuildFailed, run

_LOCK = "requirements/runtime.txt"
#: What is in these directories is taken whole, also what git is told to ignore.
_TAKEN_WHOLE = ("src/localvolume/", "flexvolume-client/")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_NO_COMMIT = "nothing is signed, as no commit has what the image would be made of: "


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, a package or a commit."""

    name: str = ""
    uri: str = ""
    digest: dict[str, str]


class Parameters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What who builds chooses."""

    allow_newest: bool


class Definition(msgspec.Struct, frozen=True, rename="camel"):
    #: docs/install.md, "Signed", says what such a build takes.
    build_type: Literal["https://localvolume.dev/image/v1"]
    external_parameters: Parameters
    resolved_dependencies: list[Descriptor]


class Builder(msgspec.Struct, frozen=True):
    id: str


class Run(msgspec.Struct, frozen=True):
    builder: Builder


class Predicate(msgspec.Struct, frozen=True, rename="camel"):
    build_definition: Definition
    run_details: Run


class Statement(msgspec.Struct, frozen=True, rename="camel"):
    kind: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: list[Descriptor]
    predicate_type: Literal["https://slsa.dev/provenance/v1"]
    predicate: Predicate

    @property
    def commit(self) -> str:
        """Of the tree that was built."""
        digests = (one.digest for one in self.predicate.build_definition.resolved_dependencies)
        return next((one["gitCommit"] for one in digests if "gitCommit" in one), "")

    def digest(self, name: str) -> str:
        """The SHA-256 of a subject, empty where there is none of that name."""
        return next((one.digest.get("sha256", "") for one in self.subject if one.name == name), "")


def statement(
    subjects: Sequence[Descriptor],
    dependencies: Sequence[Descriptor],
    builder: Builder,
    *,
    allow_newest: bool,
) -> bytes:
    """The statement that `builder` made these of those."""
    chosen = Parameters(allow_newest)
    definition = Definition("https://localvolume.dev/image/v1", chosen, [*dependencies])
    said = Statement(
        "https://in-toto.io/Statement/v1",
        [*subjects],
        "https://slsa.dev/provenance/v1",
        Predicate(definition, Run(builder)),
    )
    return msgspec.json.encode(said)


def named(builder: str) -> Builder:
    """Who builds, by a URI; raises BuildFailed where it is none."""
    if not _URI.fullmatch(builder):
        raise BuildFailed(f"who builds is named by a URI, which this is not: {builder!r}")
    return Builder(builder)


def subjects(built: Built) -> list[Descriptor]:
    """What was made: the archive, its bill, and the image as nodes know it once they have it."""
    image = Descriptor(name=built.reference, digest=_sha256(built.digest.removeprefix("sha256:")))
    return [*(described(file, file.name) for file in (built.archive, built.bill)), image]


def dependencies(tree: Path, commit: str, bill: Path) -> list[Descriptor]:
    """What it was made of: the commit of `tree`, its lock, and the packages that `bill` names.

    They are told by their record, if the image is of exactly these, and else one by one.
    """
    record = tree / "image" / base.record_file().name
    components: list[dict[str, Any]] = [
        one
        for one in json.loads(bill.read_text())["components"]
        if one.get("purl", "").startswith("pkg:deb/")
    ]
    digests = [str(one["hashes"][0]["content"]) for one in components]
    taken = [
        Package(one["name"], one["version"], digest)
        for one, digest in zip(components, digests, strict=True)
    ]
    packages = [described(record, f"image/{record.name}")]
    if sorted(taken) != sorted(pins.read(record.read_text())):
        packages = [
            Descriptor(uri=one["purl"], digest=_sha256(digest))
            for one, digest in zip(components, digests, strict=True)
        ]
    source = Descriptor(name="source", digest={"gitCommit": commit})
    return [source, described(tree / _LOCK, _LOCK), *packages]


def described(file: Path, name: str) -> Descriptor:
    """A file by its content."""
    with file.open("rb") as content:
        return Descriptor(
            name=name, digest=_sha256(hashlib.file_digest(content, "sha256").hexdigest())
        )


def commit(tree: Path) -> str:
    """The commit that `tree` is as it was committed; raises BuildFailed where it is none."""
    git = ["git", "-C", str(tree)]
    try:
        top, head = run([*git, "rev-parse", "--show-toplevel", "HEAD"]).splitlines()
    except BuildFailed as error:
        raise BuildFailed(f"{_NO_COMMIT}{error}") from error
    if not tree.samefile(top):
        raise BuildFailed(f"{_NO_COMMIT}{tree} is within another repository, {top}")
    status = ["status", "--porcelain", "-z", "--untracked-files=all", "--ignored=matching"]
    entries = run([*git, *status]).split("\0")
    if changed := [entry for entry in entries if entry and not _left_out(entry)]:
        raise BuildFailed("\n".join([f"{_NO_COMMIT}{tree} has uncommitted changes", *changed]))
    return head


def _left_out(entry: str) -> bool:
    """Of git's status, whether an entry tells of what git ignores and no image has."""
    state, path = entry[:3], entry[3:]
    return state == "!! " and (path.endswith("/__pycache__/") or not path.startswith(_TAKEN_WHOLE))


def _sha256(digest: str) -> dict[str, str]:
    return {"sha256": digest}
