"""The plain manifests under deploy/, rendered from the chart, and what is in them.

`python -m tests.chart.support_manifests` writes them; `make manifests` is the same.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chart.support_helm import ROOT, render_text

Object = dict[str, Any]

#: Of the release, of the agent's account, and of the namespace in deploy/install.yaml.
NAME: Final = "local-volume-provisioner"
DEPLOY: Final = ROOT / "deploy"
INSTALL: Final = DEPLOY / "install.yaml"
MONITORING: Final = ("servicemonitor.yaml", "prometheusrule.yaml", "dashboard.yaml")

_HEAD: Final = """\
# Rendered from charts/local-volume-provisioner with deploy/{values}: `make manifests`.
# {what}
"""


def rendered() -> Mapping[Path, str]:
    """What each file should hold."""
    install = policies_first(render_text(DEPLOY / "values.yaml"))
    monitoring = render_text(DEPLOY / "monitoring-values.yaml", only=MONITORING)
    return {
        INSTALL: _HEAD.format(
            values="values.yaml", what="kubectl apply -f deploy/install.yaml (docs/install.md)"
        )
        + install,
        DEPLOY / "monitoring.yaml": _HEAD.format(
            values="monitoring-values.yaml", what="For the Prometheus operator, beside install.yaml"
        )
        + monitoring,
    }


def policies_first(text: str) -> str:
    """The documents as kubectl is to apply them: no right is given before what confines it."""
    head, *documents = re.split(r"(?m)^---\n", text)

    def is_late(one: str) -> bool:
        return "\nkind: ValidatingAdmissionPolicy" not in one

    return "---\n".join([head, *sorted(documents, key=is_late)])


def installed() -> list[Object]:
    """Everything in deploy/install.yaml."""
    return [one for one in yaml.safe_load_all(INSTALL.read_text()) if one]


def rules_of(kind: str, name: str) -> list[Object]:
    """The rules of a role in deploy/install.yaml."""
    (one,) = (one for one in installed() if one["kind"] == kind and one["metadata"]["name"] == name)
    found: list[Object] = one["rules"]
    return found


if __name__ == "__main__":
    for path, text in rendered().items():
        path.write_text(text, encoding="utf-8")
