"""Go's filepath.Match on Unix, exactly: the language of `namePattern`.

Source: the documentation and tests of Go's path/filepath. The grammar:

    *      any sequence of bytes but "/"
    ?      any one character but "/"
    [..]   one character of a class: at least one of c, lo-hi, with "^" first to negate
    \\c     the character c, also inside a class, where \\ - ] must be written this way
    c      itself

Python's fnmatch differs in escapes, negation and malformed patterns, so it cannot serve. Go works
on UTF-8 bytes: a star may end inside a character, and a byte that begins no character counts as
the character U+FFFD, one byte long. Both are reproduced, hence bytes throughout this module.
"""

import os
from functools import lru_cache
from typing import NamedTuple

_REPLACEMENT = 0xFFFD
_SLASH = 0x2F


class BadPattern(ValueError):
    """The pattern is malformed; the text says how (Go: ErrBadPattern). Correct the pattern."""


class _Any:
    """The term "?"."""


class _Class(NamedTuple):
    """The term "[...]": code points from lo to hi, both included."""

    negated: bool
    ranges: tuple[tuple[int, int], ...]

    def takes(self, rune: int) -> bool:
        return any(lo <= rune <= hi for lo, hi in self.ranges) != self.negated


_ANY = _Any()
_Term = bytes | _Any | _Class


class _Chunk(NamedTuple):
    """What lies between two stars, and whether a star precedes it."""

    star: bool
    terms: tuple[_Term, ...]


def match(pattern: str, name: str) -> bool:
    """Whether `pattern` matches the whole of `name` (bytes that are not UTF-8: surrogateescape).

    Raises BadPattern whatever the name is; Go may miss a fault behind the first mismatch.
    """
    chunks = _compile(pattern)
    rest = os.fsencode(name)
    for number, (star, terms) in enumerate(chunks):
        last = number == len(chunks) - 1
        if star and not terms:
            return _SLASH not in rest
        # The leftmost place where a chunk fits is final, as in Go: with no "/" in the way, no
        # later place could do better.
        for skip in range(len(rest) + 1 if star else 1):
            if skip and rest[skip - 1] == _SLASH:
                return False
            end = _fits(terms, rest, skip)
            if end is not None and not (last and end < len(rest)):
                rest = rest[end:]
                break
        else:
            return False
    return not rest


def check(pattern: str) -> None:
    """Raise BadPattern, saying what is wrong, unless the pattern is well formed."""
    _compile(pattern)


def _fits(terms: tuple[_Term, ...], text: bytes, at: int) -> int | None:
    """Where the text goes on if all terms match from `at` on, else None."""
    for term in terms:
        if at >= len(text):
            return None
        if isinstance(term, bytes):
            if not text.startswith(term, at):
                return None
            at += len(term)
            continue
        rune, width = _decode(text, at)
        if isinstance(term, _Class):
            if not term.takes(rune):
                return None
        elif rune == _SLASH:
            return None
        at += width
    return at


def _decode(text: bytes, at: int) -> tuple[int, int]:
    """The code point at an offset and its length in bytes; a stray byte is U+FFFD, 1."""
    if text[at] < 0x80:
        return text[at], 1
    for width in (2, 3, 4):
        try:
            return ord(text[at : at + width].decode()), width
        except (UnicodeDecodeError, TypeError):
            continue
    return _REPLACEMENT, 1


@lru_cache(maxsize=256)
def _compile(pattern: str) -> tuple[_Chunk, ...]:
    if any("\ud800" <= char <= "\udfff" for char in pattern):
        raise BadPattern("it holds half a surrogate pair, which is no character")
    chunks: list[_Chunk] = []
    terms: list[_Term] = []
    star = False
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            if terms:
                chunks.append(_Chunk(star, tuple(terms)))
                terms = []
            star = True
            at += 1
        elif char == "?":
            terms.append(_ANY)
            at += 1
        elif char == "[":
            term, at = _class(pattern, at + 1)
            terms.append(term)
        else:
            if char == "\\":
                at += 1
                if at == len(pattern):
                    raise BadPattern("it ends in a backslash that escapes nothing")
            terms.append(pattern[at].encode())
            at += 1
    if terms or star:
        chunks.append(_Chunk(star, tuple(terms)))
    return tuple(chunks)


def _class(pattern: str, at: int) -> tuple[_Class, int]:
    """The class whose inside begins at `at`, and where the pattern goes on after its "]"."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[int, int]] = []
    while not (ranges and pattern[at : at + 1] == "]"):
        lo, at = _class_char(pattern, at)
        hi = lo
        if pattern[at : at + 1] == "-":
            hi, at = _class_char(pattern, at + 1)
        ranges.append((lo, hi))
    return _Class(negated, tuple(ranges)), at + 1


def _class_char(pattern: str, at: int) -> tuple[int, int]:
    char = pattern[at : at + 1]
    if char == "]":
        raise BadPattern('a character class or range ends too early; write "\\]" for the bracket')
    if char == "-":
        raise BadPattern('a "-" without a lower bound in a character class; write "\\-" for it')
    if char == "\\":
        at += 1
        char = pattern[at : at + 1]
    if not char or at + 1 >= len(pattern):
        raise BadPattern('a character class is not closed by "]"')
    return ord(char), at + 1


def may_both_match(one: str, two: str) -> bool:
    """Whether some file name matches both patterns. Raises BadPattern.

    Exact except for names that are not UTF-8 and for "/", which no file name holds.
    """
    first, second = _flat(one), _flat(two)
    todo, seen = [(0, 0)], set[tuple[int, int]]()
    while todo:
        i, j = step = todo.pop()
        if step in seen:
            continue
        seen.add(step)
        if i == len(first) and j == len(second):
            return True
        # A star ends here, or takes whatever the other side takes next.
        if i < len(first) and first[i] is None:
            todo += [(i + 1, j), (i, j + 1)] if j < len(second) else [(i + 1, j)]
        elif j < len(second) and second[j] is None:
            todo += [(i, j + 1), (i + 1, j)] if i < len(first) else [(i, j + 1)]
        elif i < len(first) and j < len(second) and _share(first[i] or (), second[j] or ()):
            todo.append((i + 1, j + 1))
    return False


_Ranges = tuple[tuple[int, int], ...]
_LAST = 0x10FFFF


def _flat(pattern: str) -> list[_Ranges | None]:
    """The pattern as one set of code points for each character, None for a star."""
    flat: list[_Ranges | None] = []
    for star, terms in _compile(pattern):
        if star:
            flat.append(None)
        flat.extend(_ranges(term) for term in terms)
    return flat


def _ranges(term: _Term) -> _Ranges:
    if isinstance(term, bytes):
        return ((ord(term.decode()), ord(term.decode())),)
    if isinstance(term, _Any):
        return ((0, _LAST),)
    if not term.negated:
        return term.ranges
    free, result = 0, []
    for lo, hi in sorted(term.ranges):
        if free < lo:
            result.append((free, lo - 1))
        free = max(free, hi + 1)
    return (*result, (free, _LAST))


def _share(one: _Ranges, two: _Ranges) -> bool:
    return any(max(a, c) <= min(b, d) for a, b in one for c, d in two)
