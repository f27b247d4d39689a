"""Hook of mkdocs: the site offers other versions of itself only where mike publishes them.

mike names the version that it builds in the environment. Built by `make docs`, or opened as files,
the site has no list of versions and asks for none.
"""

from __future__ import annotations

import os
from typing import Any

_BUILT_BY_MIKE = "MIKE_DOCS_VERSION"


def on_config(config: Any) -> Any:
    """Called by mkdocs before it builds."""
    if os.environ.get(_BUILT_BY_MIKE):
        config.extra["version"] = {"provider": "mike"}
    return config
