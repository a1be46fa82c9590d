"""Bodies that the router refuses by itself, before a byte of them reaches a replica."""

import json

import pytest

from router.intake.body import DECODE_UP_TO, SCAN_ABOVE
from tests.harness.behaviours import echo
from tests.harness.cases import Refusal, check_refusals
from tests.harness.messages import chat_body, head, post_json, request
from tests.harness.running import TOLD_NOTHING, Router, routed, running, scenario

CHAT = "/v1/chat/completions"
WHOLE = json.dumps(chat_body()).encode()
MALFORMED = {
    "empty": b"",
    "blank": b"  \r\n ",
    "cut": WHOLE[:-1],
    "cut in a string": WHOLE[:12],
    "surplus": WHOLE + b"}",
    "two": WHOLE + WHOLE,
    "words": b"hello",
    "form": b"model=m&x=y",
    "single quotes": b"{'model': 'm'}",
    "trailing comma": b'{"model": "m",}',
    "comment": b'{"model": "m"} // hi',
    "nul bytes": bytes(100),
    "01": b'{"model": "m", "temperature": 01}',
    "+1": b'{"model": "m", "temperature": +1}',
    ".5": b'{"model": "m", "temperature": .5}',
    "1.": b'{"model": "m", "temperature": 1.}',
}


def part(named: str, model: str, boundary: str) -> str:
    return f"--{boundary}\r\nContent-Disposition: form-data; {named}\r\n\r\n{model}\r\n"


# python-multipart up to 0.0.20 reads the model `secret` in each of these forms.
TWO = part("name=model", "secret", "b") + part("name=model", "m", "c") + "--c--\r\n--b--\r\n"
ANGLES = part("name=model", "secret", "b") + part("name=model", "m", "<b>") + "--<b>--\r\n--b--\r\n"
NAMES = part("name=model", "m", "b") + part("name=<model>", "secret", "b") + "--b--\r\n"
FORMS = {
    "boundary=c; boundary*0=b": TWO,
    "boundary=c; boundary*=utf-8''b": TWO,
    "boundary=<b>": ANGLES,
    "boundary=b": NAMES,
}


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/messages"])
@scenario
async def test_malformed_json(path: str) -> None:
    await check_refusals(
        {
            name: Refusal(sent=post_json(path, body), code=("bad_json", "model_required"))
            for name, body in MALFORMED.items()
        },
        replica=TOLD_NOTHING,
    )


@pytest.mark.parametrize("path", [CHAT, "/upload"])
@scenario
async def test_above_the_limit(path: str) -> None:
    """The refusal comes as soon as the size is known, and the client can read it."""
    fields = {f"a length of {size}": f"Content-Length: {size}" for size in (1001, 10**10, 2**40)}
    sent = {
        name: (head(f"POST {path} HTTP/1.1", ["Host: a", field]),) for name, field in fields.items()
    }
    coded = head(f"POST {path} HTTP/1.1", ["Host: a", "Transfer-Encoding: chunked"])
    sent["chunks"] = (coded, *[b"64\r\n" + b"x" * 100 + b"\r\n"] * 11)
    rows = {
        name: Refusal(sent=data, status=413, code="body_too_large") for name, data in sent.items()
    }
    await check_refusals(rows, limits={"body": 1000})


@routed(echo, limits={"body": 1000})
async def test_at_the_limit(router: Router) -> None:
    asked = request("/upload", method="POST", body=b"x" * 1000)
    assert len((await router.ask(asked)).json()["body"]) == 1000


@scenario
async def test_forms_that_are_read_in_two_ways() -> None:
    await check_refusals(
        {
            name: Refusal(
                sent=request(
                    "/v1/audio/transcriptions",
                    f"content-type: multipart/form-data; {name}",
                    method="POST",
                    body=form.encode(),
                ),
                code="bad_multipart",
            )
            for name, form in FORMS.items()
        }
    )


@scenario
async def test_responses_in_the_background() -> None:
    """Their tokens would be counted by no limit."""
    await check_refusals(
        {
            f"{size} bytes at {path}": Refusal(
                sent=post_json(path, {"model": "m", "input": "a" * size, "background": True}),
                code="background_not_served",
                param="background",
                closes=False,
            )
            for size in (0, DECODE_UP_TO, SCAN_ABOVE)
            for path in ("/v1/responses", "/v1/responses/", "/v1/batch/responses")
        }
    )
    async with running(echo) as router:
        for value in (False, None):
            body = {"model": "m", "input": "hi", "background": value}
            assert (await router.ask(post_json("/v1/responses", body), "POST")).status == 200
        elsewhere = {"model": "m", "prompt": "hi", "background": True}
        assert (await router.ask(post_json("/v1/completions", elsewhere), "POST")).status == 200


@routed(echo, replica=TOLD_NOTHING)
async def test_json_that_is_not_an_object_is_refused_or_forwarded(router: Router) -> None:
    for body in (b'[{"model": "m"}]', b'"m"', b"1", b"null", b"{}"):
        seen = len(router.replica.requests)
        answer = await router.ask(post_json(CHAT, body))
        assert answer.status in (200, 400), body
        if answer.status == 200:
            assert bytes(router.replica.requests[seen].body) == body


@routed(echo, replica=TOLD_NOTHING)
async def test_other_paths_take_any_body(router: Router) -> None:
    for name in ("words", "empty", "nul bytes"):
        answer = await router.ask(request("/other", method="POST", body=MALFORMED[name]))
        assert answer.json()["body"] == MALFORMED[name].decode("latin-1")
