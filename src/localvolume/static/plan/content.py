"""Whether a volume may be offered with what lies in it, and how strictly it is cleaned."""

from __future__ import annotations

from localvolume.cleaning.method import Method, MethodInvalid, VolumeMode, choose_method
from localvolume.config.model import ClassConfig
from localvolume.static.model import Content, Entry


def is_offerable(content: Content | None, config: ClassConfig) -> bool:
    """Whether the class offers a volume with this content, with nothing done to it first."""
    if content is None:
        return False
    if content.state == "empty":
        return True
    if config.first_use == "clean":
        return is_clean(content, config)
    if config.first_use == "trust":
        return content.state in ("holds", "traces", "formatted")
    if content.state == "formatted":
        return offers_formatted(content.fs_type, config)
    # Under the filesystem that the kubelet makes, nobody reads what was there before.
    offered_as_it_is = config.volume_mode == "Block" and _erases_content(config)
    return content.state == "traces" and not offered_as_it_is


def offers_formatted(fs_type: str, config: ClassConfig) -> bool:
    """Whether the class's volumes may have an empty filesystem of that type when they are offered.

    The kubelet mounts what it finds, as the type that the PersistentVolume names. On a raw volume,
    the tenant could read the filesystem's bytes.
    """
    return config.volume_mode == "Filesystem" and config.fs_type == fs_type


def is_clean(content: Content, config: ClassConfig) -> bool:
    """Whether the class's cleaning could leave it like this."""
    return content.state == "empty" or (content.state == "traces" and not _erases_content(config))


def strictest_mode(volume_mode: str | None, config: ClassConfig) -> VolumeMode:
    """The stricter mode to clean by: how the volume was offered, or how its class offers it now.

    A volume that was offered as a filesystem may be offered raw next, and the other way round.
    """
    return "Block" if "Block" in (volume_mode, config.volume_mode) else "Filesystem"


def method_for(entry: Entry, volume_mode: str | None, config: ClassConfig) -> Method:
    """How the class wants the entry cleaned, if it was offered in that mode.

    Raises MethodInvalid.
    """
    return choose_method(
        config.block_cleaner_command,
        volume_kind="block" if entry.kind == "block" else "filesystem",
        volume_mode=strictest_mode(volume_mode, config),
    )


def _erases_content(config: ClassConfig) -> bool:
    """Whether a block device of the class reads as zeros once it is clean.

    It does not if the administrator named a cleaner that erases only signatures, or a command.
    """
    try:
        method = choose_method(
            config.block_cleaner_command, volume_kind="block", volume_mode=config.volume_mode
        )
    except MethodInvalid:
        return True
    return method.name not in ("reset-signatures", "command")
