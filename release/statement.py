"""The sums of a release's files, and where they are from: in-toto's statement for all of them."""

import hashlib
from pathlib import Path

import msgspec

from image import base, provenance
from image.architectures import MACHINES
from release.order import Order

SUMS = "SHA256SUMS"
TYPE = "https://localvolume.dev/release/v1"
_LOCKS = ("requirements/runtime.txt", "requirements/dev.txt")


class _Parameters(msgspec.Struct, frozen=True):
    registry: str
    source: str


class _Definition(msgspec.Struct, frozen=True, rename="camel"):
    build_type: str
    external_parameters: _Parameters
    resolved_dependencies: list[provenance.Descriptor]


class _Predicate(msgspec.Struct, frozen=True, rename="camel"):
    build_definition: _Definition
    run_details: provenance.Run


class _Statement(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = msgspec.field(name="_type")
    subject: list[provenance.Descriptor]
    predicate_type: str
    predicate: _Predicate


def make(tree: Path, into: Path, order: Order, pushed: dict[str, str]) -> None:
    """Write the statement of all files that are there, and of what is `pushed` by its name and
    digest; then the sums of all files."""
    files = [provenance.described(path, path.name) for path in sorted(into.iterdir())]
    subjects = [
        provenance.Descriptor(name=name, digest={"sha256": digest.removeprefix("sha256:")})
        for name, digest in pushed.items()
    ]
    records = [base.record_file(architecture) for architecture in MACHINES]
    dependencies = [
        provenance.Descriptor(
            name="source", uri=f"git+{order.source}", digest={"gitCommit": order.commit}
        ),
        *(provenance.described(tree / lock, lock) for lock in _LOCKS),
        *(provenance.described(record, f"image/{record.name}") for record in records),
    ]
    said = _Statement(
        "https://in-toto.io/Statement/v1",
        [*files, *subjects],
        "https://slsa.dev/provenance/v1",
        _Predicate(
            _Definition(TYPE, _Parameters(order.registry, order.source), dependencies),
            provenance.Run(order.builder),
        ),
    )
    (into / order.named(".intoto.json")).write_bytes(msgspec.json.encode(said) + b"\n")
    (into / SUMS).write_text(sums(into))


def sums(directory: Path) -> str:
    """The digests of a directory's files, as sha256sum reads them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(directory.iterdir())
        if path.name != SUMS
    )
