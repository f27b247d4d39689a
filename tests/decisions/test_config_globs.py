"""`namePattern` means to us what it means to Go's filepath.Match."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.config.model import ClassConfig
from localvolume.config.syntax.globs import BadPattern, check, match, may_both_match

# From the tests of Go's path/filepath, then oddities found by comparing with Go 1.26 at random.
MATCHES = [
    ("abc", "abc", True),
    ("*", "abc", True),
    ("*c", "abc", True),
    ("a*", "a", True),
    ("a*", "abc", True),
    ("a*", "ab/c", False),
    ("a*/b", "abc/b", True),
    ("a*/b", "a/c/b", False),
    ("a*b*c*d*e*/f", "axbxcxdxe/f", True),
    ("a*b*c*d*e*/f", "axbxcxdxexxx/f", True),
    ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", False),
    ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", False),
    ("a*b?c*x", "abxbbxdbxebxczzx", True),
    ("a*b?c*x", "abxbbxdbxebxczzy", False),
    ("ab[c]", "abc", True),
    ("ab[b-d]", "abc", True),
    ("ab[e-g]", "abc", False),
    ("ab[^c]", "abc", False),
    ("ab[^b-d]", "abc", False),
    ("ab[^e-g]", "abc", True),
    ("a\\*b", "a*b", True),
    ("a\\*b", "ab", False),
    ("a?b", "a☺b", True),
    ("a[^a]b", "a☺b", True),
    ("a???b", "a☺b", False),
    ("a[^a][^a][^a]b", "a☺b", False),
    ("[a-ζ]*", "α", True),
    ("*[a-ζ]", "A", False),
    ("a?b", "a/b", False),
    ("a*b", "a/b", False),
    ("[\\]a]", "]", True),
    ("[\\-]", "-", True),
    ("[x\\-]", "x", True),
    ("[x\\-]", "-", True),
    ("[x\\-]", "z", False),
    ("[\\-x]", "x", True),
    ("[\\-x]", "-", True),
    ("[\\-x]", "a", False),
    ("*x", "xxx", True),
    ("", "", True),
    ("", "a", False),
    ("*", "", True),
    ("**", ".hidden", True),
    ("[!a]", "!", True),
    ("[a^]", "^", True),
    ("[[]", "[", True),
    ("a]", "a]", True),
    ("[d-b]", "c", False),
    ("{a,b}", "{a,b}", True),
    ("*??", "☺", True),  # a star may end inside a character
    ("*[^a]", "☺", True),
]
MALFORMED = [
    "[]a]", "[-]", "[x-]", "[-x]", "\\", "[a-b-c]", "[", "[^", "[^bc", "a[", "a/b[", "[]", "[^]",
    "a*[", "*\\", "[a-\\", "[\\", "[a-]",
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "name", "expected"), MATCHES)
def test_matches_as_go_does(pattern: str, name: str, expected: bool) -> None:
    assert match(pattern, name) is expected


@pytest.mark.parametrize("pattern", MALFORMED)
def test_malformed_patterns_are_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(BadPattern, match=r"\w+ \w+"):
        check(pattern)
    with pytest.raises(BadPattern):
        match(pattern, "x")


def test_names_that_are_no_text_count_byte_by_byte() -> None:
    name = os.fsdecode(b"a\xff\xfe")
    assert match("a??", name)
    assert not match("a?", name)
    assert match("a[\ufffd][\ufffd]", name)
    assert not match("a\ufffd*", name)


def test_half_a_surrogate_pair_is_no_pattern() -> None:
    with pytest.raises(BadPattern, match="surrogate"):
        check("a\udcff")


def test_a_list_of_patterns_is_not_trimmed() -> None:
    config = ClassConfig(name="c", host_dir="/d", mount_dir="/d", name_pattern="nvme*, sd*,x,")
    assert config.matches("nvme0")
    assert config.matches("x")
    assert not config.matches("sda")
    assert config.matches(" sda")
    assert not config.matches("y")


ATOMS = st.sampled_from(
    [("*", "[^/]*"), ("?", "[^/]"), ("[ab]", "[ab]"), ("[^ab]", "[^ab]"), ("[b-d]", "[b-d]")]
    + [(c, re.escape(c)) for c in "abcd.-"]
    + [("\\*", r"\*"), ("\\[", r"\["), ("\\a", "a"), ("[\\]-c]", r"[\]-c]")]
)
NAMES = st.text(alphabet="abcd.-*[]/", max_size=12)


@given(st.lists(ATOMS, max_size=8), NAMES)
def test_agrees_with_the_regular_expression_of_the_same_meaning(
    atoms: list[tuple[str, str]], name: str
) -> None:
    pattern = "".join(glob for glob, _ in atoms)
    expression = "".join(regex for _, regex in atoms)
    assert match(pattern, name) == bool(re.fullmatch(expression, name, re.DOTALL))


@given(st.text(alphabet="ab[]^-\\*?", max_size=10), NAMES)
def test_never_fails_but_by_bad_pattern(pattern: str, name: str) -> None:
    try:
        check(pattern)
    except BadPattern:
        with pytest.raises(BadPattern):
            match(pattern, name)
    else:
        assert match(pattern, name) in (True, False)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("*", "a", True),
        ("nvme*", "sd*", False),
        ("nvme*", "*1", True),
        ("a?", "a", False),
        ("[a-c]x", "[d-f]x", False),
        ("[a-c]x", "[c-f]x", True),
        ("[^a]", "a", False),
        ("[^a]", "[^b]", True),
        ("[^a-y]", "z", True),
        ("*a*", "*b*", True),
        ("a*b", "a*c", False),
        ("", "*", True),
        ("", "?*", False),
        ("\\*", "*", True),
    ],
)
def test_says_whether_two_patterns_have_names_in_common(one: str, two: str, expected: bool) -> None:
    assert may_both_match(one, two) is expected
    assert may_both_match(two, one) is expected


@given(st.lists(ATOMS, max_size=6), st.lists(ATOMS, max_size=6), NAMES)
def test_a_name_that_both_match_is_foreseen(
    one: list[tuple[str, str]], two: list[tuple[str, str]], name: str
) -> None:
    first, second = ("".join(glob for glob, _ in atoms) for atoms in (one, two))
    if match(first, name) and match(second, name):
        assert may_both_match(first, second)


def test_long_patterns_need_no_recursion() -> None:
    assert may_both_match("a*" * 60, "a" * 1500)
    assert not may_both_match("a*" * 60 + "b", "a" * 1500)
