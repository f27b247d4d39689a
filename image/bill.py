"""What is in the image, for who compares it with lists of flaws: a bill of materials, CycloneDX.

https://cyclonedx.org/docs/1.6/json. There is no serial number and no time in it: equal images have
equal bills.
"""

import json
import re
from collections.abc import Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from image.files import File
from image.mirror import DEBIAN

Described = Mapping[str, str]

_SOURCE = re.compile(r"(\S+)(?: \((\S+)\))?")


def written(name: str, version: str, image: str, components: Sequence[dict[str, Any]]) -> str:
    """The bill of an image by the digest of its description, `image`."""
    root = {"type": "container", "bom-ref": name, "name": name, "version": version}
    digest = {"name": "localvolume.dev:image", "value": image}
    return document({**root, "properties": [digest]}, components)


def document(of: Mapping[str, Any], components: Sequence[dict[str, Any]]) -> str:
    """A bill of anything, whose parts these are."""
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": of},
        "components": sorted(components, key=lambda one: str(one["bom-ref"])),
    }
    return json.dumps(bill, indent=1) + "\n"


def of_debian(packages: Sequence[Described]) -> list[dict[str, Any]]:
    """The distribution and its packages, by their descriptions, each with its archive's digest."""
    system = {"type": "operating-system", "name": "debian", "version": DEBIAN}
    found: list[dict[str, Any]] = [{**system, "bom-ref": f"debian-{DEBIAN}"}]
    for one in packages:
        qualifiers = f"arch={one['Architecture']}&distro=debian-{DEBIAN}"
        if (source := _SOURCE.match(one.get("Source", ""))) is not None:
            # Debian's list of flaws goes by what a package is built from.
            built_from = "@".join(part for part in source.groups() if part)
            qualifiers += f"&upstream={_quoted(built_from)}"
        made = _component("deb/debian", one["Package"], one["Version"], qualifiers)
        found.append({**made, "hashes": [{"alg": "SHA-256", "content": one["SHA256"]}]})
    return found


def with_files(
    components: Sequence[dict[str, Any]], files: Mapping[str, Sequence[File]]
) -> list[dict[str, Any]]:
    """The components, each with the files that come from it, by its reference in `files`.

    Raises KeyError where files come from a component that is not there.
    """
    missing = files.keys() - {one["bom-ref"] for one in components}
    if missing:
        raise KeyError(*sorted(missing))
    return [
        {**one, "components": [_file(file) for file in files[one["bom-ref"]]]}
        if one["bom-ref"] in files
        else one
        for one in components
    ]


def _file(file: File) -> dict[str, Any]:
    named = {"type": "file", "bom-ref": f"file:{file.path}", "name": file.path}
    if file.sha256:
        return {**named, "hashes": [{"alg": "SHA-256", "content": file.sha256}]}
    return {**named, "properties": [{"name": "localvolume.dev:link", "value": file.target}]}


def of_python(packages: Path, ours: str) -> dict[str, dict[str, Any]]:
    """Those of a directory where Python looks, by what describes each; `ours` is in no index."""
    found = {}
    for metadata in packages.glob("*.dist-info/METADATA"):
        said = HeaderParser().parsestr(metadata.read_text())
        known = of_index(said["Name"], said["Version"])
        found[metadata.parent.name] = (
            of_ours(ours, said["Version"]) if known["name"] == ours else known
        )
    return found


def of_index(name: str, version: str) -> dict[str, Any]:
    """A package by the name that Python's index has for it."""
    return _component("pypi", re.sub(r"[-_.]+", "-", name).lower(), version)


def of_ours(name: str, version: str) -> dict[str, Any]:
    """Something that is in no index."""
    return _component("generic", name, version)


def of_go(program: str, version: str, go: str) -> list[dict[str, Any]]:
    """A program of ours, and the library that the compiler `go` has linked into it."""
    return [_component("generic", program, version), _component("golang", "stdlib", go)]


def of_build(name: str, version: str) -> dict[str, Any]:
    """What the build of the image writes itself: users, settings, descriptions of packages."""
    return of_ours(f"{name}-image", version)


def _component(kind: str, name: str, version: str, qualifiers: str = "") -> dict[str, Any]:
    purl = f"pkg:{kind}/{_quoted(name)}@{_quoted(version)}"
    if qualifiers:
        purl += f"?{qualifiers}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _quoted(text: str) -> str:
    return quote(text, safe=":")
