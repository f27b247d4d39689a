"""The address of the API server, and which proxy leads there."""

import pytest

from localvolume.kube.access.auth import Access, proxy_from_environment


def test_a_server_with_a_path_keeps_it() -> None:
    assert Access("https://x/k8s/clusters/c-1/", source="t").server == "https://x/k8s/clusters/c-1"


@pytest.mark.parametrize(
    ("server", "no_proxy", "expected"),
    [
        ("https://api.example.org", "", "http://proxy:3128"),
        ("http://api.example.org", "", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://localhost:6443", "", None),
        ("https://10.96.0.1:443", "10.0.0.0/8", None),
        ("https://10.96.0.1:443", "192.168.0.0/16,bad/cidr", "http://proxy:3128"),
        ("https://api.example.org", ".example.org", None),
        ("https://api.example.org", "*.example.org", None),
        ("https://api.example.org:6443", "example.org:6443", None),
        ("https://api.example.org:6443", "example.org:443", "http://proxy:3128"),
        ("https://apiexample.org", "example.org", "http://proxy:3128"),
        ("https://10.96.0.1", "96.0.1", "http://proxy:3128"),
        ("https://api.example.org", "other, *", None),
    ],
)
def test_the_environments_proxy(server: str, no_proxy: str, expected: str | None) -> None:
    environ = {"HTTPS_PROXY": "proxy:3128", "no_proxy": no_proxy}
    assert proxy_from_environment(server, environ) == expected
