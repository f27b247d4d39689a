"""The page of `ui` and `status -o html`: what it draws, and that data in it stays data."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from localvolume.cli.seeing.page import explaining
from localvolume.cli.seeing.page.document import document, embedded
from localvolume.cli.seeing.page.explaining import explained, explanations
from localvolume.cli.seeing.page.model import LONGEST, health_of, page_data, shown
from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.states import STATES
from tests.decisions.support_seeing import agent, claim, event, facts, klass, node, room, volume

HEALTH = "localvolume.dev/health"


def drawn(*things: Any, **more: Any) -> dict[str, Any]:
    known = facts(*things, **more)
    return page_data(overview(known), explanations(known))


def test_each_state_has_a_health_and_only_what_is_known_to_be_well_is_good() -> None:
    healths = {word: health_of(word) for word in STATES}
    assert [word for word, health in healths.items() if health == "good"] == ["available", "bound"]
    assert [word for word, health in healths.items() if health == "busy"] == [
        "released", "cleaning", "pending",
    ]  # fmt: skip
    assert health_of("a state that is added later") == "bad"


def test_a_node_is_as_well_as_its_worst_volume_and_its_agent() -> None:
    nodes = [node(name) for name in ("n1", "n2", "n3", "n4")]
    agents = [agent("n1"), agent("n2"), agent("n3"), agent("n4", ready=False)]
    volumes = [
        volume("a"),
        volume("b", node_name="n2", phase="Released", claim="c"),
        volume("c", node_name="n3", annotations={HEALTH: "ReadOnly: it is"}),
        volume("d", node_name="n4"),
    ]
    found = drawn(klass(), *nodes, *agents, *volumes)
    assert [(one["name"], one["health"]) for one in found["nodes"]] == [
        ("n3", "bad"), ("n4", "bad"), ("n2", "busy"), ("n1", "good"),
    ]  # fmt: skip


def test_what_is_promised_leaves_out_what_is_available_and_is_unknown_if_a_size_is() -> None:
    things = (volume("a"), volume("b", phase="Bound", claim="c", size="3Gi"))
    (found,) = drawn(klass(), node(), *things)["nodes"]
    assert found["promisedBytes"] == 3 * 2**30
    broken = volume("x", phase="Bound", claim="d", size="no size")
    (found,) = drawn(klass(), node(), *things, broken)["nodes"]
    assert found["promisedBytes"] is None


def test_what_could_not_be_read_is_unknown_and_not_none() -> None:
    found = drawn(node(), without={"persistentvolumes": "no", "persistentvolumeclaims": "no"})
    assert found["volumes"] is None
    assert found["cleanings"] is None
    assert found["claims"] is None
    assert {one["what"] for one in found["unknown"]} == {
        "persistentvolumes", "persistentvolumeclaims",
    }  # fmt: skip
    (only,) = found["nodes"]
    assert only["promisedBytes"] is None
    assert only["claimsWaiting"] is None


def test_a_problem_names_what_the_page_can_explain() -> None:
    found = drawn(
        klass(),
        claim("data"),
        node(),
        agent(ready=False),
        volume("a", annotations={HEALTH: "ReadOnly: it is"}),
        room("made", "1Gi"),
    )
    assert {one["about"]: one["ask"] for one in found["problems"]} == {
        "node/n1": "",
        "pv/a": "pv/a",
        "pvc/data -n default": "pvc/default/data",
    }
    assert found["whys"]["pv/a"]["reason"].startswith("it is not healthy")
    assert found["whys"]["pvc/default/data"]["about"] == "pvc/data -n default"


def test_there_is_no_explanation_of_what_is_not_there() -> None:
    known = facts(klass(), volume("a"))
    assert explained(known, "pv/b") is None
    assert explained(known, "pvc/default/a") is None
    assert explained(known, "node/n1") is None
    assert explained(known, "") is None


def test_a_file_explains_what_is_not_well_before_the_rest() -> None:
    sick = volume("z", annotations={HEALTH: "ReadOnly: it is"})
    volumes = [volume(f"v{number:04}") for number in range(explaining.MOST + 10)]
    found = explanations(facts(klass(), claim("data"), *volumes, sick))
    assert len(found) == explaining.MOST
    assert list(found)[:2] == ["pvc/default/data", "pv/z"]


def test_no_text_can_turn_its_neighbours_round_or_fill_the_page() -> None:
    assert shown("a\u202eb\x1b[31m\u2028\n") == "a\\u202eb\\x1b[31m\\u2028\\n"
    long = shown({"k": ["x" * 262_144]})["k"][0]
    assert len(long) < LONGEST + 50
    assert long.endswith("(262144 characters)")
    assert shown({"n": None, "b": True, "i": 3}) == {"n": None, "b": True, "i": 3}


ATTACKS = (
    "</script><script>hacked=1</script>",
    "<!--<script>",
    "--><img src=x onerror=hacked=1>",
    "]]>&lt;/script&gt;\u2028\u2029",
    "\ud800",
)


class Elements(HTMLParser):
    """The names of all elements, as a browser would read them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)


@pytest.mark.parametrize("text", ATTACKS)
def test_data_in_the_page_stays_data(text: str) -> None:
    harmless, attacked = Elements(), Elements()
    harmless.feed(document({"name": "data"}))
    attacked.feed(document({"name": text}))
    assert attacked.names == harmless.names
    assert not re.search("[<>&\u2028\u2029]", embedded(text))
    assert json.loads(embedded(text)) == text


def test_a_message_of_a_tenant_is_in_the_page_as_text() -> None:
    said = event("data", "FailedScheduling", ATTACKS[0], kind="PersistentVolumeClaim")
    found = drawn(klass(), claim("data"), said)
    assert ATTACKS[0] in found["problems"][0]["reason"]
    page = document(found)
    assert "hacked=1" in page
    assert ATTACKS[0] not in page


def test_the_page_asks_nobody_and_runs_nothing_but_its_own() -> None:
    page = document(None)
    asked = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert asked is not None
    rules = dict(rule.split(" ", 1) for rule in asked[1].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'none'"
    assert "unsafe" not in asked[1]
    assert rules["script-src"].count("'sha256-") == 3
    assert "connect-src 'self'" in document(None, every=5.0)


def test_the_library_is_what_npm_publishes() -> None:
    vendor = resources.files("localvolume.cli.seeing.page").joinpath("vendor")
    origin = tomllib.loads(vendor.joinpath("origin.toml").read_text(encoding="utf-8"))
    there = {one.name for one in vendor.iterdir() if one.is_file()} - {"origin.toml"}
    assert there == set(origin)
    for name, one in origin.items():
        content = vendor.joinpath(name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["sha256"]
        if name.endswith(".js"):
            assert f"v{one['version']} ".encode() in content[:200]
