"""kutti's environment: KUTTI_NODE_NAME and KUTTI_ROOT_PATH make one pool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from localvolume.config.directories import clean_directory
from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.pools import PoolConfig
from localvolume.config.variables import KUTTI_NODE_NAME, KUTTI_ROOT_PATH

PROVISIONER: Final = "kuttiproject/provisioner-localvolume"
NAME: Final = "kutti"


def pool(environ: Mapping[str, str]) -> PoolConfig | None:
    """The pool that the variables ask for, None if neither is set. Raises EnvironmentInvalid.

    AgentEnvironment.read checks that the node is the agent's own.
    """
    node, root = KUTTI_NODE_NAME.text(environ), KUTTI_ROOT_PATH.text(environ)
    if not node and not root:
        return None
    problems: list[str] = []
    if not node:
        problems.append(f"{KUTTI_NODE_NAME} is not set, and {KUTTI_ROOT_PATH} is: set both")
    if not root:
        problems.append(f"{KUTTI_ROOT_PATH} is not set, and {KUTTI_NODE_NAME} is: set both")
    else:
        try:
            root = clean_directory(root)
        except ValueError as error:
            problems.append(f"{KUTTI_ROOT_PATH} {error}")
        else:
            if not os.path.isdir(root):
                problems.append(f"{KUTTI_ROOT_PATH} {root!r} is no existing directory")
    if problems:
        raise EnvironmentInvalid(problems)
    return PoolConfig(
        name=NAME,
        host_dir=root,
        mount_dir=root,
        provisioner=PROVISIONER,
        flavor="kutti",
        enforce=False,
        must_be_mounted=False,
    )
