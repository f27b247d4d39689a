"""The bill of the image's materials: CycloneDX, with names that lists of flaws know."""

from __future__ import annotations

import json
from pathlib import Path

from image import bill
from image.mirror import DEBIAN

PACKAGE = {
    "Package": "libstdc++6",
    "Source": "gcc-12 (12.2.0-14+deb12u1)",
    "Version": "1:12.2.0-14+deb12u1~x",
    "Architecture": "amd64",
    "SHA256": "0" * 64,
}


def test_a_package_of_debian() -> None:
    """Its address as purl's own specification writes it; flaws are listed by its source."""
    system, package = bill.of_debian([PACKAGE])
    assert (system["type"], system["name"], system["version"]) == (
        *("operating-system", "debian", DEBIAN),
    )
    purl = (
        f"pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1~x?arch=amd64&distro=debian-{DEBIAN}"
    )
    purl += "&upstream=gcc-12%4012.2.0-14%2Bdeb12u1"
    assert package == {
        "type": "library",
        "bom-ref": purl,
        "name": "libstdc++6",
        "version": "1:12.2.0-14+deb12u1~x",
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": "0" * 64}],
    }


def test_a_source_of_another_name_and_the_same_version() -> None:
    _, package = bill.of_debian([{**PACKAGE, "Package": "libc6", "Source": "glibc"}])
    assert package["purl"].endswith(f"?arch=amd64&distro=debian-{DEBIAN}&upstream=glibc")
    _, package = bill.of_debian([{key: PACKAGE[key] for key in PACKAGE if key != "Source"}])
    assert package["purl"].endswith(f"?arch=amd64&distro=debian-{DEBIAN}")


def test_packages_of_python(tmp_path: Path) -> None:
    """By the name that the index goes by; ours has the same name as nothing there."""
    for name, version in (("Prom_Client.X", "0.26"), ("local-volume-provisioner", "1.0")):
        place = tmp_path / f"{name}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: of no header\n"
        )
    found = bill.of_python(tmp_path, "local-volume-provisioner")
    assert {one["purl"] for one in found.values()} == {
        "pkg:pypi/prom-client-x@0.26",
        "pkg:generic/local-volume-provisioner@1.0",
    }


def test_equal_images_have_equal_bills() -> None:
    """Whatever order a directory is read in; nothing in it is of the time or of chance."""
    parts = bill.of_debian([PACKAGE, {**PACKAGE, "Package": "a"}]) + bill.of_go("c", "1", "1.24")
    text = bill.written("it", "1", "sha256:1", parts)
    assert text == bill.written("it", "1", "sha256:1", parts[::-1])
    said = json.loads(text)
    assert "serialNumber" not in said
    assert said["metadata"].keys() == {"component"}
    references = [one["bom-ref"] for one in said["components"]]
    assert len(set(references)) == len(references) == 5
