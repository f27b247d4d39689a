"""elastic's environment: DRIVER_KIND, LVM_VOLUME_GROUP and so on make one FlexVolume driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from localvolume.config import variables
from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.pools import GROUP_NAME, LvmConfig
from localvolume.config.syntax.readers import GO_TRUTH

SOCKET: Final = "/var/run/elastic-local/socket"
"""Where elastic's own client, which may still be installed, looks for its daemon."""

_KINDS: Final[Mapping[str, Literal["lvm", "bindmount"]]] = {"LVM": "lvm", "BINDMOUNT": "bindmount"}


def flexvolume(environ: Mapping[str, str], driver: str | None = None) -> FlexVolumeConfig | None:
    """The driver that the variables, or the flag `--flexvolume-driver`, ask for.

    None if neither is given; an empty variable counts as unset. AgentEnvironment.read checks that
    NODE_NAME is the agent's own. Raises EnvironmentInvalid.
    """
    kind = driver or variables.DRIVER_KIND.text(environ)
    if not kind:
        return None
    problems: list[str] = []
    given = "--flexvolume-driver" if driver else variables.DRIVER_KIND
    wanted = _KINDS.get(kind.upper() if driver else kind)
    if wanted is None:
        problems.append(f"{given} must be LVM or BINDMOUNT, not {kind!r}")
    thin = variables.LVM_USE_THIN_VOLUMES.text(environ)
    if thin not in GO_TRUTH:
        problems.append(f"{variables.LVM_USE_THIN_VOLUMES} must be true or false, not {thin!r}")
    group, pool = variables.LVM_VOLUME_GROUP.text(environ), variables.LVM_THIN_POOL.text(environ)
    for variable, name in ((variables.LVM_VOLUME_GROUP, group), (variables.LVM_THIN_POOL, pool)):
        if not GROUP_NAME.fullmatch(name):
            problems.append(f"{variable} {name!r} is no name that LVM knows")
    if problems or wanted is None:
        raise EnvironmentInvalid(problems)
    if wanted == "bindmount":
        return FlexVolumeConfig(driver="bindmount", socket=SOCKET, socket_on_host=SOCKET)
    return FlexVolumeConfig(
        driver="lvm",
        lvm=LvmConfig(group=group, thin_pool=pool if GO_TRUTH[thin] else ""),
        socket=SOCKET,
        socket_on_host=SOCKET,
    )
