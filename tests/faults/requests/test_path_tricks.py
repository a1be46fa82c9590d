"""Spellings of a path: the router checks the same path that the replica gets."""

import pytest

from tests.harness.behaviours import echo
from tests.harness.cases import Refusal, check_refusals
from tests.harness.messages import request
from tests.harness.running import Router, routed, scenario

CONTROL = [
    "/metrics",
    "/server_info",
    "/abort_request",
    "/sleep",
    "/wake_up",
    "/pause_generation",
    "/flush_cache",
    "/reset_prefix_cache",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/update_weights",
    "/start_profile",
    "/stop_profile",
]
DISGUISES = [
    "/metrics?x=1",
    "/metrics/",
    "//metrics",
    "/./metrics",
    "/x/../metrics",
    "/x/%2e%2e/metrics",
    "/%6detrics",
    "/metrics;a=b",
    "/;/metrics",
    "/x/..;/metrics",
    "/%2fmetrics",
    "/%2e/metrics",
    "\\metrics",
    "/\\metrics",
    "/x/..\\metrics",
    "/metrics%00",
]
# Paths that servers normalise differently are refused: never normalised, never forwarded.
CLEANED = ["//", "/a//b", "/a/./b", "/a/../b", "/a/%2e/b", "/a;b=c", "/a%2Fb"]
ODD = ["/a\x00b", "/\xe9", "/a%00b", "/a\\b"]
PASSES = [
    "/a%20b",
    "/a?b=/../metrics",
    "/%C3%A9",
    "/a'()",
]


@scenario
async def test_control_endpoints_are_not_there() -> None:
    await check_refusals(
        {
            f"{method} {path}": Refusal(
                sent=request(path, method=method),
                status=404,
                code="not_found",
                message="allow_paths",
                closes=False,
            )
            for path in CONTROL
            for method in ("GET", "POST")
        }
    )


@scenario
async def test_neither_in_disguise_nor_in_odd_spellings() -> None:
    """An engine that normalises paths must not find a control endpoint in an allowed path."""
    cleaned = dict.fromkeys(DISGUISES + CLEANED, (400, 404))
    await check_refusals(
        {
            path: Refusal(sent=request(path), status=status, closes=False)
            for path, status in (cleaned | dict.fromkeys(ODD, (400,))).items()
        }
    )


@pytest.mark.parametrize("path", PASSES)
@routed(echo)
async def test_other_paths_pass_byte_for_byte(router: Router, path: str) -> None:
    assert (await router.ask(request(path))).json()["target"] == path


@routed(echo, replica={"models": ("org/name",)})
async def test_a_models_name_may_hold_a_slash(router: Router) -> None:
    """SDKs escape the slash; the router answers from its list of the fleet's models."""
    for path in ("/v1/models/org%2Fname", "/v1/models/org/name"):
        assert (await router.ask(request(path))).json()["id"] == "org/name"


@routed(echo, allow_paths=("/metrics",))
async def test_what_is_allowed_by_name_is_forwarded(router: Router) -> None:
    assert (await router.ask(request("/metrics"))).status == 200
    assert (await router.ask(request("/server_info"))).status == 404


BASES = [
    ("POST", "/chat/completions", "use /v1/chat/completions; the client's base URL lacks /v1"),
    ("POST", "/responses?a=b", "use /v1/responses; the client's base URL lacks /v1"),
    ("GET", "/models/", "use /v1/models; the client's base URL lacks /v1"),
    ("POST", "/v1/v1/messages", "use /v1/messages; the client's base URL has one /v1 too many"),
    ("GET", "/v1/v1/models", "use /v1/models; the client's base URL has one /v1 too many"),
]


@scenario
async def test_a_wrong_base_url_is_named() -> None:
    await check_refusals(
        {
            path: Refusal(
                sent=request(path, method=method, body=b"{}"),
                status=404,
                message=message,
                closes=False,
            )
            for method, path, message in BASES
        }
    )


@routed(echo, allow_paths=("/chat/completions",))
async def test_paths_that_engines_have_beside_v1_are_forwarded(router: Router) -> None:
    """llama.cpp serves the first, and the second if the configuration allows it."""
    for path in ("/completions", "/chat/completions", "/v1/x/v1/models"):
        answer = await router.ask(request(path, method="POST", body=b"{}"), "POST")
        assert answer.json()["target"] == path


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/replicas", "/reload", "/drain"])
@routed(echo)
async def test_the_admin_port_is_not_on_the_data_port(router: Router, path: str) -> None:
    """Paths of the admin port are ordinary here: forwarded to a replica, and never answered by the
    router.
    """
    answer = await router.ask(request(path, method="POST"))
    assert answer.status == 404 or answer.json()["target"] == path
