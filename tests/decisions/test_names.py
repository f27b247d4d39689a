"""Names: of PersistentVolumes as upstream forms them, of nodes in labels, of provisioners."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.volumes.marks import is_provisioned_by_node, node_key, provisioned_by
from localvolume.volumes.names import longer_volume_name, volume_name

#: What the API server takes as an object's name and as a label's value.
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

#: Any bytes that the kernel allows in one name, as os.fsdecode returns them.
ENTRY_NAMES = (
    st.binary(min_size=1, max_size=60)
    .filter(lambda name: not set(name) & {0, ord("/")})
    .map(os.fsdecode)
)


# --- PersistentVolumes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "class_name", "name"),
    [
        ("mount1", "sc1", "local-pv-aaaafef5"),
        ("mount2", "sc1", "local-pv-79412c38"),
        ("symlink2", "sc1", "local-pv-23645a36"),
        ("symlink1", "sc2", "local-pv-55d5adba"),
        ("mount1", "sc2", "local-pv-a7aafa3c"),
    ],
)
def test_a_name_is_the_one_that_upstream_gives(entry: str, class_name: str, name: str) -> None:
    assert volume_name(entry, "test-node", class_name) == name


def test_a_name_has_no_padding_where_the_hash_begins_with_zeros() -> None:
    assert volume_name("disk-78", "test-node", "fast") == "local-pv-31f0c1"


def test_bytes_that_are_no_text_count_as_they_are() -> None:
    entry = os.fsdecode(b"disk-\xff")
    # FNV-1a over the joined bytes, formed here a second time.
    value = 2166136261
    for byte in b"disk-\xff" + b"test-node" + b"fast":
        value = (value ^ byte) * 16777619 % 2**32
    assert volume_name(entry, "test-node", "fast") == f"local-pv-{value:x}"


def test_where_two_volumes_hash_alike_their_longer_names_differ() -> None:
    one, other = ("lsexqzd", "test-node", "fast"), ("ztxtxde", "test-node", "fast")
    assert volume_name(*one) == volume_name(*other)
    assert longer_volume_name(*one) != longer_volume_name(*other)


def test_where_the_parts_join_to_the_same_bytes_the_longer_names_differ() -> None:
    one, other = ("x", "node", "nodey"), ("xnode", "node", "y")
    assert volume_name(*one) == volume_name(*other)
    assert longer_volume_name(*one) != longer_volume_name(*other)


@given(ENTRY_NAMES, st.from_regex(OBJECT_NAME, fullmatch=True), st.text("abc-", min_size=1))
def test_every_name_is_one_that_the_api_server_takes(entry: str, node: str, class_: str) -> None:
    short, longer = volume_name(entry, node, class_), longer_volume_name(entry, node, class_)
    for name in (short, longer):
        assert OBJECT_NAME.fullmatch(name)
        assert len(name) <= 63
    assert short != longer


# --- the node's label ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "node-1", "ip-10-0-0-1.ec2.internal", "n" * 63])
def test_a_node_name_that_is_a_label_is_the_key_itself(name: str) -> None:
    assert node_key(name) == name


def test_a_longer_node_name_becomes_its_beginning_and_a_hash() -> None:
    name = "worker-0042.rack-17.hall-3.frankfurt.production.clusters.example.org"
    key = node_key(name)
    assert len(name) > 63
    assert re.fullmatch(r"worker-0042\.rack-17\.hall-3\.frankfurt\.pro-[0-9a-f]{16}", key)
    assert key == node_key(name), "the same at every start"


def test_longer_node_names_with_the_same_beginning_have_different_keys() -> None:
    common = "n" * 100
    assert node_key(f"{common}-a") != node_key(f"{common}-b")


def test_a_name_one_character_too_long_is_not_cut() -> None:
    assert node_key("n" * 64) != node_key("n" * 63)
    assert node_key("n" * 64) != "n" * 64


@given(st.text(min_size=1, max_size=253))
def test_a_key_is_always_the_value_of_a_label(name: str) -> None:
    key = node_key(name)
    assert LABEL_VALUE.fullmatch(key)
    assert len(key) <= 63


# --- provisioners --------------------------------------------------------------------------------


def test_the_provisioner_is_named_after_the_node_and_its_uid() -> None:
    assert provisioned_by("node-1", "uid-1", name_only=False) == (
        "local-volume-provisioner-node-1-uid-1"
    )


def test_use_node_name_only_leaves_the_uid_out() -> None:
    assert provisioned_by("node-1", "uid-1", name_only=True) == "local-volume-provisioner-node-1"


@pytest.mark.parametrize(
    ("value", "is_own"),
    [
        ("local-volume-provisioner-node-1", True),
        ("local-volume-provisioner-node-1-0f2b3c", True),
        ("local-volume-provisioner-node-1-the-uid-of-the-node-before-this-one", True),
        ("local-volume-provisioner-node-12", False),
        ("local-volume-provisioner-node", False),
        ("local-volume-provisioner-node-2-0f2b3c", False),
        ("some-other-provisioner-node-1", False),
        ("node-1", False),
        ("", False),
    ],
)
def test_whose_provisioner_it_was(value: str, is_own: bool) -> None:
    assert is_provisioned_by_node(value, "node-1") is is_own
