"""What may not be read is said in one short line each, and once who has the rights."""

from __future__ import annotations

import pytest

from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.tables import print_status
from localvolume.cli.seeing.unread import in_short
from localvolume.cli.seeing.why.claim import why_claim
from localvolume.cli.seeing.why.volume import why_volume
from tests.decisions.support_seeing import NOW, claim, facts, klass, volume

WHERE = "at the cluster scope"


def refused(what: str, verb: str = "list", group: str = "", where: str = WHERE) -> str:
    """As the API server says it, and as our error repeats it."""
    text = f'User "anna" cannot {verb} resource "{what}" in API group "{group}" {where}'
    return f"{what} is forbidden: {text} (403 Forbidden)"


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (refused("nodes"), "no right to list them"),
        (refused("csidrivers", "get", "storage.k8s.io"), "no right to get them"),
        (
            refused("pods", where='in the namespace "shop"'),
            "no right to list them in the namespace shop",
        ),
        (
            "the server did not answer in 30s (Timeout)",
            "the server did not answer in 30s (Timeout)",
        ),
        ("it is forbidden (403)", "it is forbidden (403)"),
    ],
)
def test_the_missing_right_in_a_few_words(why: str, text: str) -> None:
    assert in_short(why) == text


def test_why_has_a_line_for_each_right_and_the_remedy_once() -> None:
    missing = ("nodes", "pods", "jobs", "events", "storageclasses")
    without = {what: refused(what) for what in missing}
    it = volume(claim="data", phase="Bound")
    found = why_volume(facts(it, without=without), it)
    lines = [value for name, value in found.chain if name == "Unknown"]
    assert lines == [f"{what}: no right to list them" for what in missing]
    rights = [value for name, value in found.chain if name == "Rights"]
    assert rights == ['the chart\'s ClusterRole …-viewer has these: have it bound to "anna"']
    assert dict(found.chain)["Agent"] == "unknown: pods could not be read: no right to list them"
    shown = [line for line in found.text(NOW).splitlines() if "no right" in line]
    assert max(map(len, shown)) < 80


def test_the_wide_table_says_in_short_why_it_has_no_volumes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = facts(without={"persistentvolumes": refused("persistentvolumes")})
    print_status(overview(known), NOW, wide=True)
    assert "persistentvolumes: unknown: no right to list them" in capsys.readouterr().out.split(
        "\n"
    )


def test_a_claim_says_in_short_what_nobody_can_tell() -> None:
    it = claim()
    without = {"persistentvolumes": refused("persistentvolumes")}
    found = why_claim(facts(it, klass(), without=without), it)
    assert found.verdict.text == "nobody can tell: persistentvolumes: no right to list them"


def test_without_a_missing_right_nobody_is_sent_for_one() -> None:
    it = volume()
    found = why_volume(facts(it, klass(), without={"jobs": "timed out"}), it)
    assert dict(found.chain)["Unknown"] == "jobs: timed out"
    assert "Rights" not in dict(found.chain)
