"""The templates of a class: text with the names, labels and annotations of a claim put in.

The part of Go's text/template that path and owner patterns use: literal text and
`{{ .PVName }}`, `{{ .PVC.Name }}`, `{{ .PVC.Namespace }}`, `{{ .PVC.UID }}`,
`{{ .PVC.Labels.x }}` or `{{ index .PVC.Labels "x" }}`, and the same of `.PVC.Annotations`, with
trim markers (`{{-`, `-}}`). Anything else is refused by name. What a claim lacks is an error here;
Go would write "<no value>" or nothing, and two claims would get the same path.

Tenants write labels and annotations: `paths` checks what is made from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from localvolume.kube.objects import PersistentVolumeClaim

SUPPORTED: Final = (
    "{{ .PVName }}, {{ .PVC.Name }}, {{ .PVC.Namespace }}, {{ .PVC.UID }}, {{ .PVC.Labels.x }}, "
    '{{ index .PVC.Labels "x" }} and the same of .PVC.Annotations'
)

_LONGEST: Final = 4096
_SPACE: Final = " \t\r\n"
_FIELDS: Final = {
    ".PVName": "PVName",
    ".PVC.Name": "Name",
    ".PVC.Namespace": "Namespace",
    ".PVC.UID": "UID",
}
_MAP_FIELD: Final = re.compile(r"\.PVC\.(Labels|Annotations)\.([A-Za-z_][A-Za-z0-9_]*)")
_INDEX: Final = re.compile(
    r"index[ \t\r\n]+\.PVC\.(Labels|Annotations)[ \t\r\n]+"
    r'(?:"([^"\\\n]*)"|`([^`]*)`)'
)

Source = Literal["text", "PVName", "Name", "Namespace", "UID", "Labels", "Annotations"]


class BadTemplate(ValueError):
    """The text is not a template that we understand; the message says why. Correct the class."""


class MissingValue(ValueError):
    """The claim lacks a label or annotation that the template needs; the message names it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Literal text (`value`), a field of the claim, or its label or annotation `value`."""

    source: Source
    value: str = ""


Template = tuple[Part, ...]


def parse(text: str) -> Template:
    """Read a template. Raises BadTemplate."""
    if len(text) > _LONGEST:
        raise BadTemplate(f"has more than {_LONGEST} characters")
    parts: list[Part] = []
    rest, trim = text, False
    while True:
        literal, opening, rest = rest.partition("{{")
        if trim:
            literal = literal.lstrip(_SPACE)
        # A "-" trims only where a space follows it, as in Go.
        if opening and rest[:1] == "-" and rest[1:2] in tuple(_SPACE):
            literal, rest = literal.rstrip(_SPACE), rest[1:]
        if literal:
            parts.append(Part("text", literal))
        if not opening:
            return tuple(parts)
        end = _end_of_action(rest)
        action, rest = rest[:end], rest[end + 2 :]
        trim = action[-1:] == "-" and action[-2:-1] in tuple(_SPACE)
        parts.append(_action((action[:-1] if trim else action).strip(_SPACE)))


def render(template: Template, claim: PersistentVolumeClaim, pv_name: str) -> str:
    """The text for one claim. Raises MissingValue."""
    return "".join(_value(part, claim, pv_name) for part in template)


def _end_of_action(text: str) -> int:
    """Where the action's "}}" is, leaving out those inside quotes."""
    quote = ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in '"`':
            quote = char
        elif text.startswith("}}", at):
            return at
    raise BadTemplate('has "{{" without "}}"')


def _action(text: str) -> Part:
    if text in _FIELDS:
        return Part(_FIELDS[text])  # type: ignore[arg-type]  # the names are those of Source
    if match := _MAP_FIELD.fullmatch(text):
        source, key = match.groups()
        return Part(source, key)  # type: ignore[arg-type]
    if match := _INDEX.fullmatch(text):
        source, key, raw = match.groups()
        return Part(source, raw if key is None else key)  # type: ignore[arg-type]
    shown = repr("{{ " + text + " }}")
    raise BadTemplate(f"{shown if len(shown) < 100 else 'an action'} is not known: {SUPPORTED}")


def _value(part: Part, claim: PersistentVolumeClaim, pv_name: str) -> str:
    meta = claim.metadata
    if part.source == "text":
        return part.value
    if part.source in ("Labels", "Annotations"):
        labels = part.source == "Labels"
        values = meta.labels if labels else meta.annotations
        if part.value not in values:
            kind = "label" if labels else "annotation"
            raise MissingValue(f"the claim has no {kind} {part.value!r}, which its class needs")
        return values[part.value]
    fields = {"PVName": pv_name, "Name": meta.name, "Namespace": meta.namespace, "UID": meta.uid}
    if not (found := fields[part.source]):
        raise MissingValue(f"the claim has no {part.source}")
    return found
