"""Start inputs for fuzzing: valid messages, because odd ones are near them."""

from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    completion,
    event,
    head,
    request,
    role,
    token,
)

_WAY = b"\x03\x07"  # first bytes of an input: how it is cut
_FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a;\\"b"\r\n'
    b"Content-Type: audio/wav\r\n\r\nxyz\r\n--b--\r\n"
)
_CHUNKED = head("POST /v1/chat/completions HTTP/1.1", ["Host: h", "Transfer-Encoding: chunked"]) + (
    b'8;a="b"\r\n{"model"\r\n5\r\n:"m"}\r\n0\r\nX: y\r\n\r\n'
)
_USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
_BODY = b'{"model":"m","stream":true,"n":1,"messages":[{"role":"user","content":"a\\"\\u0041"}]}'

SEEDS: dict[str, list[bytes]] = {
    "request": [_WAY + chat(stream=True), _WAY + request() * 2, _WAY + _CHUNKED],
    "response": [
        _WAY + completion(),
        _WAY + SSE_HEAD + chunk(token()) + LAST_CHUNK,
        _WAY + b"HTTP/1.1 103 E\r\n\r\nHTTP/1.0 200 OK\r\nX: y\r\n\r\nto the end",
    ],
    "body": [_WAY + _BODY, _WAY + _FORM],
    "members": [_WAY + _BODY, _WAY + b' {"priority" : [1,{"a":"}"}] ,"model":"n","model":"m"} '],
    "form": [b'multipart/form-data; boundary="b"\n' + _FORM, b"a; boundary=b\n" + _FORM],
    "stream": [
        _WAY + role() + token() * 3 + _USAGE + DONE,
        _WAY + event({"choices": [{"delta": {}}], "usage": {"prompt_tokens": 3}}) + token() + DONE,
        _WAY + b'event: error\r\ndata: {"error":{"message":"m"}}\r\n\r\n: c\r\r',
    ],
}
