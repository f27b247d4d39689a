"""What a claim's status says of its volume, whichever release of Kubernetes runs."""

from collections.abc import Mapping
from typing import Any


def conditions_of(claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its conditions, without `Unused`: since 1.37 that tells whether pods use the claim."""
    found = claim["status"].get("conditions") or []
    return [one for one in found if one["type"] != "Unused"]
