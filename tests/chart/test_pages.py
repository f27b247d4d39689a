"""The values that the pages show: the chart takes each, and the agent understands what it makes."""

from __future__ import annotations

import re
import textwrap

import pytest
import yaml

from localvolume.config.loading import Source, build
from tests.chart.support_helm import ROOT, Refused, one, render

pytestmark = pytest.mark.needs("go")

_VALUES = re.compile(
    r"^ *```yaml\n(?P<text> *# (?:my-)?values\.yaml\n.*?)^ *```$", re.DOTALL | re.MULTILINE
)


def _values_of(page: str) -> list[str]:
    return [textwrap.dedent(match["text"]) for match in _VALUES.finditer(page)]


SHOWN = [
    pytest.param(text, id=f"{path.relative_to(ROOT / 'docs').as_posix()}-{number}")
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for number, text in enumerate(_values_of(path.read_text("utf-8")), 1)
]


@pytest.mark.parametrize("text", SHOWN)
def test_the_chart_takes_the_values_that_a_page_shows(text: str) -> None:
    shown = yaml.safe_load(text)
    data = one(render(shown), "ConfigMap", "local-volume-provisioner-config")["data"]
    configuration = build(
        [Source(key, key, value) for key, value in data.items()], host_checks=False
    )
    assert {pool.name for pool in configuration.pools} == set(shown.get("pools", {}))


def test_values_that_there_are_not_are_found() -> None:
    (text,) = _values_of("```yaml\n# values.yaml\npool:\n  fast: {hostDir: /mnt/fast}\n```\n")
    with pytest.raises(Refused, match="pool"):
        render(yaml.safe_load(text))
