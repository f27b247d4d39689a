"""The key `disks`: what a filter may say, and what is wrong with it, by name."""

from typing import Any

import pytest
import yaml

from localvolume.config.disks import DiskFilter, DiskMatch, DisksConfig
from localvolume.config.loading import Source, build
from localvolume.config.model import ConfigurationInvalid

CLASSES = {
    "fast": {"hostDir": "/mnt/fast", "mountDir": "/seen/fast"},
    "raw": {"hostDir": "/mnt/raw", "mountDir": "/seen/raw", "volumeMode": "Block"},
}
DIGEST = "sha256:" + "0a" * 32
GOOD: dict[str, Any] = {"name": "ssds", "class": "fast", "match": {"minSize": "10Gi"}}


def read(disks: Any, classes: Any = CLASSES) -> DisksConfig | None:
    sources = [
        Source("storageClassMap", "storageClassMap", yaml.safe_dump(classes)),
        Source("disks", "disks", yaml.safe_dump(disks)),
    ]
    return build(sources).disks


def problems(disks: Any) -> list[str]:
    with pytest.raises(ConfigurationInvalid) as caught:
        read(disks)
    return [str(problem) for problem in caught.value.problems]


def test_without_the_key_there_is_none() -> None:
    assert (
        build([Source("f", "storageClassMap", yaml.safe_dump(CLASSES))], host_checks=False).disks
        is None
    )


def test_a_filter_gets_the_directories_of_its_class() -> None:
    match = {
        "minSize": "10Gi",
        "maxSize": "2Ti",
        "model": "SAMSUNG*",
        "vendor": "ATA",
        "rotational": False,
        "transport": "sata",
        "byId": "wwn-*",
        "partitions": True,
    }
    given = {**GOOD, "match": match, "fsType": "xfs", "mkfsOptions": "-i size=1024"}
    assert read({"filters": [given], "approved": [DIGEST]}) == DisksConfig(
        filters=(
            DiskFilter(
                name="ssds",
                class_name="fast",
                host_dir="/mnt/fast",
                mount_dir="/seen/fast",
                match=DiskMatch(
                    min_bytes=10 << 30,
                    max_bytes=2 << 40,
                    model="SAMSUNG*",
                    vendor="ATA",
                    rotational=False,
                    transport="sata",
                    by_id="wwn-*",
                    partitions=True,
                ),
                fs_type="xfs",
                mkfs_options=("-i", "size=1024"),
            ),
        ),
        approved=frozenset({DIGEST}),
    )


def test_a_class_of_block_devices_gets_no_filesystem() -> None:
    config = read({"filters": [{**GOOD, "class": "raw"}]})
    assert config is not None
    assert config.filters[0].block


@pytest.mark.parametrize(
    ("disks", "said"),
    [
        ({"filter": []}, "disks: disks.filter: unknown key; did you mean filters?"),
        ({"filters": [{**GOOD, "clas": "fast"}]}, "disks.filters[0].clas: unknown key"),
        ({"filters": [{**GOOD, "match": {"minsiz": "1Gi"}}]}, "did you mean minSize?"),
        ({"filters": [{"name": "a"}]}, "disks.filters[0].class: is missing"),
        ({"filters": [{"name": "a"}]}, "disks.filters[0].match: is missing"),
        ({"filters": [{**GOOD, "match": {}}]}, "means every disk"),
        ({"filters": [{**GOOD, "match": {"partitions": True}}]}, "means every disk"),
        ({"filters": [{**GOOD, "match": {"minSize": "big"}}]}, "must be a quantity"),
        ({"filters": [{**GOOD, "match": {"minSize": "2Gi", "maxSize": "1Gi"}}]}, "means no disk"),
        ({"filters": [{**GOOD, "match": {"model": "["}}]}, "match.model: is no pattern"),
        ({"filters": [{**GOOD, "match": {"model": ""}}]}, "match.model: must not be empty"),
        ({"filters": [{**GOOD, "match": {"transport": "nvm"}}]}, "did you mean nvme?"),
        ({"filters": [{**GOOD, "match": {"rotational": "no!"}}]}, "must be true or false"),
        ({"filters": [{**GOOD, "class": "fats"}]}, "did you mean fast?"),
        ({"filters": [{**GOOD, "name": "Not a name"}]}, "disks.filters[0].name: must be"),
        ({"filters": [GOOD, GOOD]}, "ssds is the name of another filter as well"),
        ({"filters": [{**GOOD, "fsType": "zfs"}]}, "fsType: must be ext4 or xfs"),
        ({"filters": [{**GOOD, "mkfsOptions": "-F"}]}, "'-F' is no option that ext4 may have"),
        ({"filters": [{**GOOD, "mkfsOptions": "-U x"}]}, "'-U' is no option"),
        (
            {"filters": [{**GOOD, "class": "raw", "fsType": "xfs"}]},
            "disks.filters.ssds.fsType: is for a class of volumeMode Filesystem",
        ),
        (
            {"filters": [{**GOOD, "class": "raw", "mkfsOptions": "-m 0"}]},
            "disks.filters.ssds.mkfsOptions: is for a class of volumeMode Filesystem",
        ),
        ({"approved": ["yes"]}, "disks.approved[0]: must be a digest"),
        ({"approved": [DIGEST.upper()]}, "disks.approved[0]: must be a digest"),
    ],
)
def test_what_is_wrong_is_named(disks: Any, said: str) -> None:
    assert any(said in problem for problem in problems(disks)), problems(disks)
