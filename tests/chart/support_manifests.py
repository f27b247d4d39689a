"""The plain manifests under deploy/, rendered from the chart.

`python -m tests.chart.support_manifests` writes them; `make manifests` is the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.chart.support_helm import ROOT, render_text

DEPLOY: Final = ROOT / "deploy"
MONITORING: Final = ("servicemonitor.yaml", "prometheusrule.yaml", "dashboard.yaml")

_HEAD: Final = """\
# Rendered from charts/local-volume-provisioner with deploy/{values}: `make manifests`.
# {what}
"""


def rendered() -> Mapping[Path, str]:
    """What each file should hold."""
    install = render_text(DEPLOY / "values.yaml")
    monitoring = render_text(DEPLOY / "monitoring-values.yaml", only=MONITORING)
    return {
        DEPLOY / "install.yaml": _HEAD.format(
            values="values.yaml", what="kubectl apply -f deploy/install.yaml (docs/install.md)"
        )
        + install,
        DEPLOY / "monitoring.yaml": _HEAD.format(
            values="monitoring-values.yaml", what="For the Prometheus operator, beside install.yaml"
        )
        + monitoring,
    }


if __name__ == "__main__":
    for path, text in rendered().items():
        path.write_text(text, encoding="utf-8")
