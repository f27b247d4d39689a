"""What tenants and other writers put into the cluster does not steer the reader's terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from localvolume_lab.sandbox.kinds import LEASES
from tests.cli.support_page import cluster, said


async def test_no_text_of_the_cluster_steers_the_terminal(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (sandbox, made, kubeconfig):
        made.fill(nodes=1, volumes=1)
        escape = "\x1b]0;taken\x07\x1b[2J\u202e"
        made.waiting_claim("orders", escape, reason=f"Said{escape}")
        made.annotate("local-pv-00000", health=escape)
        lease = {"metadata": {"name": "localvolume-controller"}, "spec": {"holderIdentity": escape}}
        sandbox.api.create(LEASES, lease, "default")
        asked = ("--kubeconfig", str(kubeconfig))
        for words in (
            ("status", "-o", "wide"),
            ("why", "pvc/orders"),
            ("why", "pv/local-pv-00000"),
            ("status", "-o", "html"),
            ("status", "-o", "yaml"),
            ("why", "pvc/orders", "-o", "yaml"),
        ):
            shown = (await said(*words, *asked)).decode()
            assert not re.search("[\x1b\x07\u202e]", shown), words
        assert "Said\\x1b" in (await said("why", "pvc/orders", *asked)).decode()


async def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=1, volumes=1)
        for words in (("status",), ("why", "pv/local-pv-00000")):
            asked = (*words, "--kubeconfig", str(kubeconfig), "-o")
            found = yaml.safe_load(await said(*asked, "yaml"))
            expected = json.loads(await said(*asked, "json"))
            assert _timeless(found) == _timeless(expected)


def _timeless(shape: dict[str, Any]) -> dict[str, Any]:
    """Without the moment at which it was read."""
    return {key: value for key, value in shape.items() if key != "time"}


async def test_a_long_text_of_a_tenant_does_not_fill_the_terminal(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.waiting_claim("orders", "long " * 50_000)
        for words in (("status", "-o", "wide"), ("why", "pvc/orders")):
            shown = (await said(*words, "--kubeconfig", str(kubeconfig))).decode()
            assert re.search(r"…\(2500\d\dcharacters\)", "".join(shown.split())), words
            assert len(shown) < 50_000, words
