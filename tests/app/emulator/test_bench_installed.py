"""`hedgerow bench` in a program that was installed without the folder `bench`."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from router.cli import _BENCHES, full_parser, main
from tests.harness.emulated import emulated
from tests.harness.running import scenario

# A program whose import of `bench` fails, as that of an installed one does.
INSTALLED = (
    "import sys; sys.modules['bench'] = None; from router.cli import main; "
    "sys.exit(main(sys.argv[1:]))"
)


@scenario
async def test_the_users_own_fleet_is_measured(tmp_path: Path) -> None:
    async with emulated("vllm") as engine:
        flags = ("--seconds", "0.3", "--repeats", "1", "--json", "-", "--no-pin")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", INSTALLED, "bench", "overhead"),
            *("--upstream", engine.url, *flags),
            cwd=tmp_path,
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found = json.loads(out)
    assert found["upstream"] == engine.url
    for shape in found["shapes"].values():
        assert shape["errors"] == []
        assert shape["hedgerow_latency_mean_ms"] > 0
        assert shape["cpu_us_per_request"] > 0


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every import of `bench` fail in this process."""
    for name in [name for name in sys.modules if name.startswith("bench.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bench", None)


@pytest.mark.parametrize("url", ["gpu-1:8000", "http://gpu-1:8000/v1"])
@pytest.mark.usefixtures("installed")
def test_a_wrong_url_is_a_mistake(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "overhead", "--upstream", url]) == 2
    assert capsys.readouterr().err == ("--upstream must be http://host:port or https://host:port\n")


@pytest.mark.parametrize("name", sorted(_BENCHES.keys() - {"overhead"}))
@pytest.mark.usefixtures("installed")
def test_the_others_say_in_one_line_that_they_run_from_a_checkout(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["bench", name, "--markdown"])
    assert leaving.value.code == 1
    assert capsys.readouterr().err == (
        f"hedgerow bench {name}: not part of an installed program; run "
        f"`python -m router bench {name}` in a checkout of the source\n"
    )


@pytest.mark.usefixtures("installed")
def test_the_completion_needs_no_benchmark() -> None:
    assert full_parser().parse_args(["bench", "overhead", "--upstream", "http://a"])
