"""The templates of path and owner patterns: the part of Go's that is understood, and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.dynamic.classes.templates import BadTemplate, MissingValue, parse, render
from localvolume.kube.objects import Meta, PersistentVolumeClaim

CLAIM = PersistentVolumeClaim(
    metadata=Meta(
        name="data",
        namespace="team",
        uid="u-1",
        labels={"app": "db", "example.com/tier": "gold", "empty": "", "odd}}": "x"},
        annotations={"dir": "a/b", "x-y": "z"},
    )
)


def rendered(text: str, claim: PersistentVolumeClaim = CLAIM) -> str:
    return render(parse(text), claim, "pvc-1")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", ""),
        ("plain }} text", "plain }} text"),
        ("{{ .PVName }}", "pvc-1"),
        ("{{.PVName}}", "pvc-1"),
        ("{{\t.PVName\n}}", "pvc-1"),
        ("{{ .PVName }}_{{ .PVC.Namespace }}_{{ .PVC.Name }}", "pvc-1_team_data"),
        ("{{ .PVC.Namespace }}/{{ .PVC.Name }}/", "team/data/"),
        ("{{ .PVC.UID }}", "u-1"),
        ("{{ .PVC.Labels.app }}", "db"),
        ('{{ index .PVC.Labels "app" }}', "db"),
        ('{{ index .PVC.Labels "example.com/tier" }}', "gold"),
        ("{{ index .PVC.Annotations `x-y` }}", "z"),
        ("{{ .PVC.Annotations.dir }}", "a/b"),
        ("x{{ .PVC.Labels.empty }}y", "xy"),
        ('{{ index .PVC.Labels "odd}}" }}', "x"),
    ],
)
def test_what_is_understood(text: str, result: str) -> None:
    assert rendered(text) == result


def test_trim_markers() -> None:
    assert rendered("a \n {{- .PVName -}} \t b") == "apvc-1b"
    assert rendered("a  {{ .PVName -}}  b") == "a  pvc-1b"
    # Without its space it is no trim marker, in Go neither.
    with pytest.raises(BadTemplate):
        parse("{{-.PVName}}")
    assert rendered("a \n {{- .PVC.Name }} b") == "adata b"
    assert rendered("{{ .PVC.Name -}} \n {{- .PVC.Namespace }}") == "datateam"


@pytest.mark.parametrize(
    "action",
    [
        "",
        "PVName",
        ".",
        ".PVC",
        ".pvc.name",
        ".PVC.Spec.VolumeName",
        ".PVC.Labels",
        ".PVC.Labels.a.b",
        ".PVC.Labels.a-b",
        "$.PVName",
        ".PVName | printf",
        'printf "%s" .PVName',
        'index .PVC.Labels "a" "b"',
        "index .PVC.Labels a",
        "index .PVC.Labels 'a'",
        'index .PVC.Labels "a\\n"',
        'index .PVC "Name"',
        "(index .PVC.Labels `a`)",
        "if .PVName",
        "end",
        "range .PVC.Labels",
        'template "x"',
        "/* comment */",
        '"literal"',
        ".PVName.Foo",
        ".PVName .PVName",
        "{{ .PVName",
    ],
)
def test_anything_else_is_refused_with_what_is_supported(action: str) -> None:
    with pytest.raises(BadTemplate, match=r"\.PVC\.Namespace"):
        parse("x{{ " + action + " }}y")


@pytest.mark.parametrize("text", ["{{", "a{{ .PVName", "{{ .PVName }", '{{ index .PVC.Labels "a}}'])
def test_an_open_end_is_refused(text: str) -> None:
    with pytest.raises(BadTemplate, match="without"):
        parse(text)


def test_a_long_template_is_refused() -> None:
    with pytest.raises(BadTemplate, match="characters"):
        parse("x" * 5000)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{{ .PVC.Labels.gone }}", "label 'gone'"),
        ('{{ index .PVC.Labels "gone" }}', "label 'gone'"),
        ("{{ .PVC.Annotations.app }}", "annotation 'app'"),
        ('{{ index .PVC.Annotations "a/b" }}', "annotation 'a/b'"),
    ],
)
def test_what_a_claim_lacks_is_an_error(text: str, name: str) -> None:
    """Go writes "<no value>" or nothing, and two claims have the same path."""
    with pytest.raises(MissingValue, match=name):
        rendered(text)


def test_a_claim_without_a_uid_is_an_error() -> None:
    with pytest.raises(MissingValue):
        rendered("{{ .PVC.UID }}", PersistentVolumeClaim(metadata=Meta(name="x")))


@given(st.text(max_size=40) | st.text(alphabet='{}.- `"indexPVCLabelsName', max_size=40))
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        template = parse(text)
    except BadTemplate:
        return
    assert all("{{" not in part.value for part in template if part.source == "text")
    if "{{" not in text:
        assert render(template, CLAIM, "pvc-1") == text


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_a_tenant_writes_is_never_a_template(label: str, annotation: str) -> None:
    claim = PersistentVolumeClaim(
        metadata=Meta(
            name="n", namespace="s", labels={"l": label}, annotations={"a": "{{" + annotation}
        )
    )
    text = "{{ .PVC.Labels.l }}|{{ .PVC.Annotations.a }}"
    assert render(parse(text), claim, "p") == label + "|{{" + annotation
