"""elastic's environment: DRIVER_KIND, LVM_VOLUME_GROUP and so on make one FlexVolume driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from localvolume.config.environment import ELASTIC_KIND_VARIABLE, EnvironmentInvalid
from localvolume.config.flexvolume import ELASTIC_GROUP, ELASTIC_THIN_POOL, FlexVolumeConfig
from localvolume.config.pools import GROUP_NAME, LvmConfig

SOCKET: Final = "/var/run/elastic-local/socket"
"""Where elastic's own client, which may be installed still, looks for its daemon."""

GROUP_VARIABLE: Final = "LVM_VOLUME_GROUP"
THIN_VARIABLE: Final = "LVM_USE_THIN_VOLUMES"
THIN_POOL_VARIABLE: Final = "LVM_THIN_POOL"

_KINDS: Final[Mapping[str, Literal["lvm", "bindmount"]]] = {"LVM": "lvm", "BINDMOUNT": "bindmount"}
# As Go's strconv.ParseBool reads them.
_TRUTH: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def flexvolume(environ: Mapping[str, str], driver: str | None = None) -> FlexVolumeConfig | None:
    """The driver that the variables, or the flag `--flexvolume-driver`, ask for.

    None where neither is given; an empty variable counts as unset. That NODE_NAME is the agent's
    own is seen to by AgentEnvironment.read. Raises EnvironmentInvalid.
    """
    kind = driver or environ.get(ELASTIC_KIND_VARIABLE, "")
    if not kind:
        return None
    problems: list[str] = []
    given = "--flexvolume-driver" if driver else ELASTIC_KIND_VARIABLE
    wanted = _KINDS.get(kind.upper() if driver else kind)
    if wanted is None:
        problems.append(f"{given} must be LVM or BINDMOUNT, not {kind!r}")
    thin = environ.get(THIN_VARIABLE, "") or "false"
    if thin not in _TRUTH:
        problems.append(f"{THIN_VARIABLE} must be true or false, not {thin!r}")
    group = environ.get(GROUP_VARIABLE) or ELASTIC_GROUP
    pool = environ.get(THIN_POOL_VARIABLE) or ELASTIC_THIN_POOL
    for variable, name in ((GROUP_VARIABLE, group), (THIN_POOL_VARIABLE, pool)):
        if not GROUP_NAME.fullmatch(name):
            problems.append(f"{variable} {name!r} is no name that LVM knows")
    if problems or wanted is None:
        raise EnvironmentInvalid(problems)
    if wanted == "bindmount":
        return FlexVolumeConfig(driver="bindmount", socket=SOCKET, socket_on_host=SOCKET)
    return FlexVolumeConfig(
        driver="lvm",
        lvm=LvmConfig(group=group, thin_pool=pool if _TRUTH[thin] else ""),
        socket=SOCKET,
        socket_on_host=SOCKET,
    )
