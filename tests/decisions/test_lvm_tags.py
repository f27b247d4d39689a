"""What is written on logical volumes comes back as it was, and nothing else is taken for ours."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.volumes.lvtags import PREFIX, BadTag, change, decode, encode

_KEYS = st.from_regex(r"[a-z][a-z-]{0,20}", fullmatch=True)
_FIELDS = st.dictionaries(_KEYS, st.text(min_size=1, max_size=60), max_size=8)
#: lvm(8), "Tags", and the first may be no hyphen.
_LVM_TAKES = re.compile(r"[A-Za-z0-9_+.][A-Za-z0-9_+.\-/=!:&#]{0,1023}")


@given(_FIELDS)
def test_any_fields_come_back_as_they_were(fields: Mapping[str, str]) -> None:
    tags = encode(fields)
    assert all(_LVM_TAKES.fullmatch(tag) for tag in tags)
    assert decode(tags) == fields


@given(_FIELDS, st.sets(st.sampled_from(["backup", "owner=me", "localvolume.developer/x=1"])))
def test_tags_of_others_are_not_ours(fields: Mapping[str, str], foreign: set[str]) -> None:
    assert decode({*encode(fields), *foreign}) == fields


@given(_FIELDS, _FIELDS, st.sets(st.sampled_from(["backup", "owner=me"])))
def test_a_change_leads_from_any_to_any_and_leaves_others_alone(
    old: Mapping[str, str], new: Mapping[str, str], foreign: set[str]
) -> None:
    tags = encode(old) | foreign
    remove, add = change(tags, new)
    assert (tags - remove) | add == encode(new) | foreign
    assert not remove & foreign
    assert not remove & add
    assert change((tags - remove) | add, new) == (frozenset(), frozenset())


@given(st.sets(st.text(max_size=40).map(lambda text: PREFIX + text)))
def test_any_tags_are_read_or_refused(tags: set[str]) -> None:
    try:
        fields = decode(tags)
    except BadTag:
        return
    assert len(fields) == len(tags)


def test_empty_values_are_left_out() -> None:
    assert encode({"claim": "", "state": "made"}) == {f"{PREFIX}state=made"}


@pytest.mark.parametrize(
    ("value", "tag"),
    [
        ("ns/name", "ns/name"),
        ("a b", "a&20b"),
        ("a&b,c", "a&26b&2cc"),
        ("ä", "&c3&a4"),
        ("k=v", "k=v"),
        ("@", "&40"),
    ],
)
def test_what_lvm_takes_in_no_tag_is_escaped(value: str, tag: str) -> None:
    assert encode({"claim": value}) == {f"{PREFIX}claim={tag}"}


@pytest.mark.parametrize(
    "tags",
    [
        [PREFIX + "state"],
        [PREFIX + "state=made", PREFIX + "state=making"],
        [PREFIX + "claim=a&2"],
        [PREFIX + "claim=a&2G"],
        [PREFIX + "claim=&"],
        [PREFIX + "claim=&ff"],
        [PREFIX + "claim=\u20ac"],
        [PREFIX + "=made"],
    ],
)
def test_malformed_tags_are_refused(tags: list[str]) -> None:
    with pytest.raises(BadTag):
        decode(tags)


def test_a_value_longer_than_a_tag_is_refused() -> None:
    encode({"k": "v" * (1024 - len(PREFIX) - 2)})
    with pytest.raises(BadTag, match="1024"):
        encode({"k": "v" * (1024 - len(PREFIX) - 1)})
    with pytest.raises(BadTag):
        encode({"k": "ä" * 200})
