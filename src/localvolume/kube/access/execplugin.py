"""Credentials from an exec plugin (client.authentication.k8s.io), as cloud kubeconfigs use it."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from localvolume.kube.access.kubeconfig import Chosen, ExecPlugin
from localvolume.kube.errors import AccessInvalid

_GROUP: Final = "client.authentication.k8s.io/"
_VERSIONS: Final = (f"{_GROUP}v1", f"{_GROUP}v1beta1")
# Without a terminal a plugin waits only for the network; at one, a person may have to type.
_SECONDS_UNATTENDED: Final = 60.0
_SECONDS_ATTENDED: Final = 600.0


class Credential(msgspec.Struct, rename="camel"):
    """The `status` of an ExecCredential; certificate and key are PEM text."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: Credential | None = None


def check(plugin: ExecPlugin, where: str) -> None:
    """Raise AccessInvalid for settings with which no run of the plugin could succeed."""
    if plugin.api_version not in _VERSIONS:
        raise AccessInvalid(
            f"{where}.apiVersion: {plugin.api_version!r} is not supported ({', '.join(_VERSIONS)})"
        )
    if plugin.interactive_mode not in ("Never", "IfAvailable", "Always"):
        raise AccessInvalid(
            f"{where}.interactiveMode: {plugin.interactive_mode!r} is none of "
            "Never, IfAvailable, Always"
        )


async def run(chosen: Chosen, plugin: ExecPlugin, where: str) -> Credential:
    """Run the plugin once. Raises AccessInvalid if it fails, with the end of its stderr."""
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    interactive = terminal and plugin.interactive_mode != "Never"
    if plugin.interactive_mode == "Always" and not interactive:
        raise AccessInvalid(f"{where}.interactiveMode is Always, and there is no terminal")
    command = plugin.command
    if os.path.dirname(command):
        # A path is relative to the kubeconfig; a bare name is looked for in PATH.
        command = chosen.user.path(command)
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *(plugin.args or ()),
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if interactive else asyncio.subprocess.PIPE,
            env=_environment(chosen, plugin, interactive),
        )
    except OSError as error:
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        raise AccessInvalid(f"{where}.command: {command}: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(_SECONDS_ATTENDED if interactive else _SECONDS_UNATTENDED):
            output, complaint = await process.communicate()
    except TimeoutError as error:
        raise AccessInvalid(f"{where}.command: {command}: did not answer in time") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = (complaint or b"").decode("utf-8", "replace").strip()[-500:]
        raise AccessInvalid(f"{where}.command: {command}: exit {process.returncode}: {said}")
    return _parse(output, plugin, f"{where}.command: {command}")


def _parse(output: bytes, plugin: ExecPlugin, where: str) -> Credential:
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.DecodeError as error:
        raise AccessInvalid(f"{where}: printed no ExecCredential: {error}") from error
    if answer.api_version != plugin.api_version:
        raise AccessInvalid(
            f"{where}: answered with apiVersion {answer.api_version}, asked {plugin.api_version}"
        )
    status = answer.status
    if status is None or not (status.token or status.client_certificate_data):
        raise AccessInvalid(f"{where}: gave neither a token nor a client certificate")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise AccessInvalid(f"{where}: gave a certificate without its key, or the reverse")
    return status


def _authority(chosen: Chosen) -> str:
    """The CA in base64, as plugins expect it, even if the kubeconfig names a file."""
    cluster = chosen.cluster
    if cluster.certificate_authority_data or not cluster.certificate_authority:
        return cluster.certificate_authority_data
    with open(cluster.path(cluster.certificate_authority), "rb") as file:
        return base64.b64encode(file.read()).decode()


def _environment(chosen: Chosen, plugin: ExecPlugin, interactive: bool) -> Mapping[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        cluster = chosen.cluster
        given = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": _authority(chosen),
            "proxy-url": cluster.proxy_url,
        }
        spec["cluster"] = {key: value for key, value in given.items() if value}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    extra = {variable.name: variable.value for variable in plugin.env or ()}
    return {**os.environ, **extra, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
