"""The plain manifests with the released image in them, and a base for kustomize."""

from pathlib import Path

import yaml

from image.application import NAME
from release.archives import Entry, tar_gz
from release.order import Order
from tests.chart.support_helm import render_text
from tests.chart.support_manifests import DEPLOY, MONITORING, policies_first

_KUSTOMIZATION = """\
# kubectl apply -k, or `resources:` of a kustomization of yours. `components: [../monitoring]` there
# adds what the Prometheus operator reads.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - install.yaml
"""
_COMPONENT = """\
# What the Prometheus operator reads; it is added to a kustomization that has the base.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources:
  - monitoring.yaml
"""


def make(into: Path, order: Order, image: str) -> None:
    """Write them for the image that has the digest `image` in the registry."""
    named = {"image": f"{order.image}:{order.version}", "imageDigest": image}
    install = policies_first(render_text({**_values("values.yaml"), **named}))
    monitoring = render_text({**_values("monitoring-values.yaml"), **named}, only=MONITORING)
    head = f"# {NAME} {order.version} (docs/install.md)\n"
    texts = {"install.yaml": head + install, "monitoring.yaml": head + monitoring}
    for name, text in texts.items():
        (into / name).write_text(text)
    base = {
        "base/install.yaml": texts["install.yaml"],
        "base/kustomization.yaml": _KUSTOMIZATION,
        "monitoring/monitoring.yaml": texts["monitoring.yaml"],
        "monitoring/kustomization.yaml": _COMPONENT,
    }
    entries = {name: Entry(text.encode()) for name, text in base.items()}
    (into / order.named("-kustomize.tar.gz")).write_bytes(tar_gz(entries, order.epoch))


def _values(name: str) -> dict[str, object]:
    values: dict[str, object] = yaml.safe_load((DEPLOY / name).read_text())
    return values
