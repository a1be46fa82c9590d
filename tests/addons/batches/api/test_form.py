"""Upload forms: whole, byte by byte and with trailing bytes; invalid forms and their errors."""

from time import process_time

import pytest

from router.addons.batches.api.asked import Refused
from router.addons.batches.api.form import (
    FIELD_MAX,
    HEAD_LINE_BYTES,
    HEAD_LINES,
    PARTS,
    SLACK,
    Form,
)
from router.addons.batches.api.uploads import STEP
from tests.addons.forms import part

TYPE = b"multipart/form-data; boundary=edge"
END = b"--edge--\r\n"
FILE = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
MIB = 1024 * 1024


def read(data: bytes, size: int = STEP, content_type: bytes = TYPE) -> tuple[Form, bytes]:
    """A whole form in pieces of one size, and its file."""
    form = Form(content_type)
    found = bytearray()
    for at in range(0, len(data), size):
        form.feed(data[at : at + size])
        found += form.take()
    form.finish()
    return form, bytes(found + form.take())


def refusal(data: bytes, size: int = STEP, content_type: bytes = TYPE) -> str:
    with pytest.raises(Refused) as caught:
        read(data, size, content_type)
    assert (caught.value.status, caught.value.code) == (400, "bad_multipart")
    return caught.value.message


CONTENTS = [
    b"",
    b"{}",
    b"\r\n",
    b"\r\n--edg",
    b"\r\n--edg\r\n--edg\r\n",
    b"--edge--\r\n",  # the boundary is not a line of its own
    b"a\n--edge\nb",
    bytes(range(256)) * 5,
    b"\r" * 300 + b"\n" + b"-" * 300,
]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, STEP])
@pytest.mark.parametrize("behind", [b"", b"\r\nmore\r\n--edge\r\n"])
def test_the_same_however_it_comes(content: bytes, size: int, behind: bytes) -> None:
    text = b"--edge\r\nContent-Disposition: form-data; name=t\r\n\r\n--\r\n--\r\n"
    data = FILE + content + b"\r\n" + text + part("purpose", b"batch") + END + behind
    form, found = read(data, size)
    assert found == content
    assert form.fields == {"t": "--\r\n--", "purpose": "batch"}
    assert form.filename == "f"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'form-data; name="file"; filename="a.jsonl"', "a.jsonl"),
        (b"form-data;name=file;filename=a.jsonl", "a.jsonl"),
        (b'form-data; filename="a.jsonl"; name="file"', "a.jsonl"),
        (b'form-data; name="file"', "file.jsonl"),  # a file without a name
        (b'form-data; name="file"; filename=""', "file.jsonl"),
        (b'form-data; name="file"; filename="a;b=\\"c\\".jsonl"', 'a;b="c".jsonl'),  # curl < 7.81
        (b'form-data; name="file"; filename="a%22.jsonl"', "a%22.jsonl"),  # curl, httpx, aiohttp
        (b'form-data; name="file"; filename="C:\\x\\a.jsonl"', "a.jsonl"),
        (b'form-data; name="file"; filename="../../a.jsonl"', "a.jsonl"),
        ('form-data; name="file"; filename="\u00e9.jsonl"'.encode(), "\u00e9.jsonl"),
        (b'form-data; name="file"; filename="\xff.jsonl"', "\ufffd.jsonl"),
        (b"form-data; name=\"file\"; filename*=utf-8''%C3%A9.jsonl", "\u00e9.jsonl"),  # urllib3 1
        (b'form-data; name="file"; filename="e"; filename*=UTF-8\'\'%C3%A9', "\u00e9"),
    ],
)
def test_names_that_clients_send(head: bytes, name: str) -> None:
    data = b"--edge\r\nContent-Disposition: " + head + b"\r\nContent-Type: text/plain\r\n\r\nx\r\n"
    form, found = read(data + END)
    assert (form.filename, found) == (name, b"x")


@pytest.mark.parametrize(
    "content_type",
    [
        b'multipart/form-data; boundary="edge"',
        b"Multipart/Form-Data; charset=utf-8; Boundary=edge",
    ],
)
def test_content_types(content_type: bytes) -> None:
    assert read(FILE + b"x\r\n" + END, content_type=content_type)[1] == b"x"


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"application/json",
        b"multipart/form-datax; boundary=edge",
        b"multipart/mixed; boundary=edge",
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b'multipart/form-data; boundary=""',
        b'multipart/form-data; boundary="edge',
        b"multipart/form-data; boundary=" + b"e" * 71,
        b"multipart/form-data; boundary=edge; boundary=edge",
        b"multipart/form-data; boundary*=utf-8''edge",
    ],
)
def test_content_types_that_are_refused(content_type: bytes) -> None:
    refusal(FILE + b"x\r\n" + END, content_type=content_type)


@pytest.mark.parametrize("encoding", [b"binary", b"8BIT", b" 7bit"])
def test_an_encoding_that_changes_nothing(encoding: bytes) -> None:
    data = FILE[:-2] + b"Content-Transfer-Encoding:" + encoding + b"\r\n\r\nx\r\n" + END
    assert read(data)[1] == b"x"


def test_the_longest_boundary_and_the_shortest() -> None:
    for edge in (b"e" * 70, b"-"):
        data = (FILE + b"\r\n--\r\n" + END).replace(b"edge", edge)
        assert read(data, 1, TYPE.replace(b"edge", edge))[1] == b"\r\n--"


HEADED = b"--edge\r\nContent-Disposition: form-data; name=t\r\n"
REFUSED = [
    b"",
    b"x",
    b"x\r\n" + FILE + b"x\r\n" + END,
    b"--edgex\r\n" + END,
    b"--edg",
    b"--edge\rx",
    b"--edge-x",
    FILE,
    FILE + b"x\r\n--edge",
    FILE + b"x\r\n--edge-",
    FILE + b"x\r\n--edge\t \tx\r\n",
    FILE + b"\r\n--edgex\r\n" + END,
    FILE + b"\r\n--edge-x\r\n" + END,
    FILE + b"\r\n--edge\rx\r\n" + END,
    FILE + b"x\r\n" + FILE + b"x\r\n" + END,
    b"--edge\r\n\r\nx\r\n" + END,
    b"--edge\r\nContent-Disposition: form-data\r\n\r\nx\r\n" + END,
    b"--edge\r\nContent-Disposition: form-data; name*=utf-8''file\r\n\r\nx\r\n" + END,
    b'--edge\r\nContent-Disposition: form-data; name="file\r\n\r\nx\r\n' + END,
    HEADED + HEADED[8:] + b"\r\nx\r\n" + END,
    HEADED + b"Content-Encoding: gzip\r\n\r\nx\r\n" + END,
    HEADED + b"Content-Transfer-Encoding: base64\r\n\r\nx\r\n" + END,
    HEADED + b"no colon\r\n\r\nx\r\n" + END,
    HEADED + b" folded: x\r\n\r\nx\r\n" + END,
    HEADED + b": x\r\n\r\nx\r\n" + END,
    HEADED + b"X: y\rz\r\n\r\nx\r\n" + END,
    HEADED + b"X: " + b"y" * HEAD_LINE_BYTES + b"\r\n\r\nx\r\n" + END,
    HEADED + b"X: y\r\n" * HEAD_LINES + b"\r\nx\r\n" + END,
    HEADED + b"\r\n" + b"x" * (FIELD_MAX + 1) + b"\r\n" + END,
    HEADED + b"\r\n\r\n--edgex\r\n" + END,
    (HEADED + b"\r\nx\r\n") * (PARTS + 1) + END,
    b"\r\n" * SLACK + FILE + b"x\r\n" + END,
    FILE + b"x\r\n" + END + b"x" * (SLACK + 100),
]


@pytest.mark.parametrize("data", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_however_it_comes(data: bytes) -> None:
    said = refusal(data)
    for size in (1, 5, 1000):
        assert refusal(data, size).split(" at ")[0] == said.split(" at ")[0]


def test_what_is_just_allowed() -> None:
    head = HEADED + b"X: y\r\n" * (HEAD_LINES - 1)
    data = (head + b"\r\n" + b"x" * FIELD_MAX + b"\r\n") * (PARTS - 1)
    for size in (1, STEP):
        assert read(data + FILE + b"x\r\n" + END, size)[1] == b"x"


def test_the_file_may_be_large() -> None:
    content = b"\r\n--edg" * (MIB // 7)
    assert read(FILE + content + b"\r\n" + END)[1] == content


def test_a_field_named_filename_is_no_file() -> None:
    form, found = read(part("filename", b"x") + END)
    assert (form.filename, found) == (None, b"")
    form, found = read(FILE + b"x\r\n" + part("filename", b"y") + END)
    assert (form.filename, found) == ("f", b"x")


FILLERS = {
    "line ends before": b"\r\n",
    "lines before": b"\r\nx",
    "one line": b"x",
    "hyphens": b"-",
    "empty parts": b"--edge\r\n\r\n",
    "small parts": HEADED + b"\r\n\r\n",
    "almost boundaries before": b"\r\n--edg",
}
BEHIND = {
    "a field": HEADED + b"\r\n|x",
    "a head's lines": HEADED + b"|X:y\r\n",
    "a head's name": HEADED + b"|X",
    "a head's value": HEADED + b"X: |y",
    "spaces before a value": HEADED + b"X:| ",
    "spaces behind a boundary": FILE + b"\r\n--edge| ",
    "bytes behind the end": FILE + b"\r\n--edge--|\r\n",
    "boundaries that are none": FILE + b"|\r\n--edgex",
    "ends that are none": FILE + b"|\r\n--edge-x",
}
WITHOUT_END = {name: (b"", filler) for name, filler in FILLERS.items()} | {
    name: (both.partition(b"|")[0], both.partition(b"|")[2]) for name, both in BEHIND.items()
}


@pytest.mark.parametrize("name", WITHOUT_END)
@pytest.mark.parametrize("size", [100, STEP])
def test_what_is_no_file_ends_soon(name: str, size: int) -> None:
    """At most two pieces beyond the limit are read, for any announced length."""
    start, filler = WITHOUT_END[name]
    form = Form(TYPE)
    form.feed(start)
    piece = filler * (size // len(filler) + 1)
    fed = 0
    with pytest.raises(Refused):
        while True:
            form.feed(piece)
            fed += len(piece)
    assert fed <= SLACK + 2 * len(piece)


FILES = {
    "almost boundaries": b"\r\n--edg",
    "carriage returns": b"\r",
    "line ends": b"\r\n",
    "line ends and hyphens": b"\r\n--",
    "hyphens": b"-",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("edge", [b"edge", b"e" * 70, b"-" * 70])
def test_a_byte_of_a_file_costs_the_same_in_any_size(name: str, edge: bytes) -> None:
    filler = FILES[name] if b"g" not in FILES[name] else b"\r\n--" + edge[:-1]
    kind = TYPE.replace(b"edge", edge)

    def cost(mibs: int) -> float:
        form = Form(kind)
        form.feed(FILE.replace(b"edge", edge))
        piece = (filler * (STEP // len(filler) + 1))[:STEP]
        began = process_time()
        for _ in range(mibs * MIB // STEP):
            form.feed(piece)
            form.take()
        return process_time() - began

    # A cost that grew with the square of the size would be 16 times as high.
    once = min(cost(4) for _ in range(3))
    assert min(cost(16) for _ in range(3)) < 7.0 * once
