"""Finding the way to the API server: kubeconfigs, and the pod's service account."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from localvolume.kube.access.auth import find_access, from_cluster
from localvolume.kube.errors import AccessInvalid
from tests.contract.support_kube_certificates import Authority


def write(path: Path, **over: object) -> Path:
    """A kubeconfig with one context, `over` replacing parts of it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:8001/"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "current-context": "x",
        **over,
    }
    path.write_text(yaml.safe_dump(config))
    return path


def user(**fields: object) -> list[object]:
    return [{"name": "u", "user": fields}]


def cluster(**fields: object) -> list[object]:
    return [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443", **fields}}]


async def test_a_kubeconfig(tmp_path: Path) -> None:
    access = find_access(str(write(tmp_path / "kc")), environ={})
    assert access.server == "http://127.0.0.1:8001"
    assert access.namespace == "n"
    assert access.context is None
    assert await access.token() == "secret"
    assert "context x" in access.source


async def test_the_order_of_ways(tmp_path: Path) -> None:
    def at(name: str, port: int) -> str:
        server = {"server": f"http://127.0.0.1:{port}"}
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return str(write(tmp_path / name, clusters=[{"name": "k", "cluster": server}]))

    given, named = at("given", 1), at("named", 2)
    at(".kube/config", 3)
    account = tmp_path / "account"
    account.mkdir()
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    home = {"HOME": str(tmp_path)}

    def found(kubeconfig: str | None, environ: dict[str, str]) -> str:
        return find_access(kubeconfig, environ=environ, service_account=str(account)).server

    assert found(given, {"KUBECONFIG": named, **pod, **home}) == "http://127.0.0.1:1"
    assert found(None, {"KUBECONFIG": named, **pod, **home}) == "http://127.0.0.1:2"
    assert found(None, {"KUBECONFIG": "", **pod, **home}) == "http://127.0.0.1:3"
    (account / "token").write_text("t")
    with pytest.raises(AccessInvalid, match=r"ca\.crt"):
        found(None, {**pod, **home})
    with pytest.raises(AccessInvalid, match="no way to an API server"):
        found(None, {"HOME": str(account)})


async def test_several_files_merge_as_kubectl_merges_them(tmp_path: Path) -> None:
    one = write(tmp_path / "one", users=None, contexts=None, **{"current-context": ""})
    two = write(tmp_path / "two", clusters=[{"name": "k", "cluster": {"server": "http://other"}}])
    environ = {"KUBECONFIG": f"{tmp_path}/missing:{one}:{two}"}
    access = find_access(environ=environ)
    assert access.server == "http://127.0.0.1:8001"
    assert await access.token() == "secret"


async def test_a_context_by_name(tmp_path: Path) -> None:
    path = str(write(tmp_path / "kc"))
    with pytest.raises(AccessInvalid, match=r"no context 'y' in contexts \(there: x\)"):
        find_access(path, context="y", environ={})
    assert find_access(path, context="x", environ={}).namespace == "n"


async def test_a_token_of_digits_is_a_token(tmp_path: Path) -> None:
    path = tmp_path / "kc"
    write(path, users=user(token="TOKEN"))
    path.write_text(path.read_text().replace("TOKEN", "0123"))
    assert await find_access(str(path), environ={}).token() == "0123"


async def test_token_file_is_beside_the_kubeconfig_and_wins(tmp_path: Path) -> None:
    (tmp_path / "tok").write_text("from file\n")
    path = write(tmp_path / "kc", users=user(token="inline", tokenFile="tok"))
    assert await find_access(str(path), environ={}).token() == "from file"


def test_who_we_pretend_to_be_is_never_left_out(tmp_path: Path) -> None:
    extra = {"example.org/scope": ["one", "two"]}
    fields = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": extra}
    path = write(tmp_path / "kc", users=user(username="me", password="pw", **fields))
    headers = find_access(str(path), environ={}).headers
    assert headers == (
        ("Authorization", "Basic " + base64.b64encode(b"me:pw").decode()),
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.org%2Fscope", "one"),
        ("Impersonate-Extra-example.org%2Fscope", "two"),
    )


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"clusters": [{"name": "k", "cluster": {}}]}, r"clusters\[k\]\.cluster\.server"),
        ({"clusters": None}, "there is no cluster 'k'"),
        ({"users": None}, "there is no user 'u'"),
        ({"current-context": None}, "current-context is not set"),
        ({"users": [{"name": "u", "user": {"token": ["x"]}}]}, r"users\[0\]\.user\.token"),
        ({"users": user(**{"auth-provider": {"name": "gcp"}})}, "auth-provider"),
        ({"users": user(**{"as-groups": ["a"]})}, "need user.as"),
        ({"users": user(tokenFile="gone")}, "user.tokenFile: .*gone"),
        (
            {
                "users": user(
                    exec={"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}
                )
            },
            "exec.apiVersion",
        ),
        ({"users": user(exec={"command": "x"})}, "apiVersion"),
        (
            {
                "users": user(
                    exec={
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": "x",
                        "interactiveMode": "Sometimes",
                    }
                )
            },
            "interactiveMode",
        ),
        ({"clusters": cluster(**{"certificate-authority": "gone"})}, "cluster.certificate-auth"),
        ({"clusters": cluster(**{"certificate-authority-data": "eA=="})}, "no certificate in it"),
        ({"clusters": cluster(), "users": user(**{"client-certificate": "x"})}, "needs its key"),
        ({"clusters": cluster(server="ftp://x")}, "not an http or https URL"),
        ({"clusters": cluster(**{"proxy-url": "socks5://x"})}, "proxy-url"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, over: dict[str, object], says: str) -> None:
    path = write(tmp_path / "kc", **over)
    with pytest.raises(AccessInvalid, match=says) as caught:
        find_access(str(path), environ={})
    assert str(path) in str(caught.value)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessInvalid, match="missing: no such file"):
        find_access(str(tmp_path / "missing"), environ={})
    with pytest.raises(AccessInvalid, match="cannot be read"):
        find_access(str(tmp_path), environ={})
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(AccessInvalid, match="not YAML"):
        find_access(str(tmp_path / "bad"), environ={})


async def test_in_a_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod token")
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = from_cluster(environ=environ, service_account=str(tmp_path))
    assert access.server == "https://[fd00::1]:443"
    assert access.namespace == "default"
    assert await access.token() == "pod token"
    # This authority and not the system's.
    assert access.context is not None
    assert len(access.context.get_ca_certs()) == 1
    (tmp_path / "namespace").write_text("storage")
    access = from_cluster(environ=environ, service_account=str(tmp_path))
    assert access.namespace == "storage"
    with pytest.raises(AccessInvalid, match="KUBERNETES_SERVICE_PORT"):
        from_cluster(environ={"KUBERNETES_SERVICE_HOST": "x"}, service_account=str(tmp_path))
    (tmp_path / "token").write_text("")
    with pytest.raises(AccessInvalid, match="empty"):
        from_cluster(environ=environ, service_account=str(tmp_path))
