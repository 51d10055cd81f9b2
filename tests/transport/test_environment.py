"""Proxies of the environment: both HTTP libraries go the same ways."""

from __future__ import annotations

import httpx2
import pytest

from furcate.primitives._wire import AttemptFailed
from furcate.transport._environment import proxies_of_environment, trusting_context

PLACES = (
    "https://models.example/v1",
    "https://models.example:8443/v1",
    "https://eu.models.example/v1",
    "https://notmodels.example/v1",
    "http://127.0.0.1:8000/v1",
    "http://10.1.2.3/v1",
    "http://[::1]:8000/v1",
    "http://localhost:11434/v1",
)


@pytest.mark.parametrize(
    "exempt",
    [
        "",
        "*",
        "models.example",
        ".models.example",
        "*.models.example",
        "models.example:8443",
        "127.0.0.1,localhost",
        "10.0.0.0/8, ::1",
        "127.0.0.1:8000",
        "[::1]",
        "MODELS.example",
        "::nonsense::,models.example",
    ],
)
@pytest.mark.parametrize(
    "given",
    [
        {"HTTPS_PROXY": "http://secure.example:3128"},
        {"HTTP_PROXY": "plain.example:3128", "ALL_PROXY": "http://any.example:3128"},
        {"ALL_PROXY": "https://any.example"},
    ],
)
def test_both_libraries_take_the_same_proxy(monkeypatch, given, exempt) -> None:
    """For each address the same proxy or none, by the same variables."""
    for name, value in {**given, "NO_PROXY": exempt}.items():
        monkeypatch.setenv(name, value)
    ours = proxies_of_environment("name an HTTP proxy")
    client = httpx2.AsyncClient(trust_env=True)
    for place in PLACES:
        url = httpx2.URL(place)
        proxied = client._transport_for_url(url) is not client._transport
        port = url.port or (443 if url.scheme == "https" else 80)
        assert (ours.url_for(url.scheme, url.host, port) is not None) == proxied, place


def test_the_proxy_of_the_scheme_goes_first(monkeypatch) -> None:
    """The one for all addresses stands in where there is none."""
    monkeypatch.setenv("HTTPS_PROXY", "http://secure.example:3128")
    monkeypatch.setenv("ALL_PROXY", "any.example:3128")
    proxies = proxies_of_environment("name an HTTP proxy")
    assert proxies.url_for("https", "models.example", 443) == "http://secure.example:3128"
    assert proxies.url_for("http", "models.example", 80) == "http://any.example:3128"


@pytest.mark.parametrize("url", ["socks5://me:hidden@proxy.example", "ftp://me:hidden@proxy.example", "http://"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(monkeypatch, url) -> None:
    """One sentence that says what would be right."""
    monkeypatch.setenv("ALL_PROXY", url)
    with pytest.raises(AttemptFailed) as caught:
        proxies_of_environment("name an HTTP proxy")
    assert caught.value.failure.reason == "bad_environment"
    assert "hidden" not in str(caught.value)
    assert "proxy" in str(caught.value)


def test_a_folder_that_is_not_there_trusts_nobody(monkeypatch) -> None:
    """OpenSSL looks into the folder when it needs to; until then nobody is trusted."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", "/no/such/folder")
    assert trusting_context().get_ca_certs() == []
