"""kutti's environment: KUTTI_NODE_NAME and KUTTI_ROOT_PATH make one pool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from localvolume.config.directories import clean_directory
from localvolume.config.environment import KUTTI_NODE_VARIABLE, EnvironmentInvalid
from localvolume.config.pools import PoolConfig

PROVISIONER: Final = "kuttiproject/provisioner-localvolume"
ROOT_VARIABLE: Final = "KUTTI_ROOT_PATH"
NAME: Final = "kutti"


def pool(environ: Mapping[str, str]) -> PoolConfig | None:
    """The pool that the variables ask for, None where neither is set. Raises EnvironmentInvalid.

    That the node is the agent's own is seen to by AgentEnvironment.read.
    """
    node, root = environ.get(KUTTI_NODE_VARIABLE, ""), environ.get(ROOT_VARIABLE, "")
    if not node and not root:
        return None
    problems: list[str] = []
    if not node:
        problems.append(f"{KUTTI_NODE_VARIABLE} is not set, and {ROOT_VARIABLE} is: set both")
    if not root:
        problems.append(f"{ROOT_VARIABLE} is not set, and {KUTTI_NODE_VARIABLE} is: set both")
    else:
        try:
            root = clean_directory(root)
        except ValueError as error:
            problems.append(f"{ROOT_VARIABLE} {error}")
        else:
            if not os.path.isdir(root):
                problems.append(f"{ROOT_VARIABLE} {root!r} is no existing directory")
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
