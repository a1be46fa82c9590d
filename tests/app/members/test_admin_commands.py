"""`hedgerow fleet`, `cordon`, `drain` and `uncordon`, run as a user runs them."""

import asyncio
import sys
from pathlib import Path

from router.config.model import Admin, AdminTls
from tests.harness.behaviours import answer, json_ok
from tests.harness.messages import json_response
from tests.harness.ports import free_port
from tests.harness.running import Router, running, scenario
from tests.places import CERT, KEY

WITH_TOKEN = Admin(listen="127.0.0.1:0", token="secret")


async def hedgerow(*words: str) -> tuple[int, str, str]:
    """Run the command; return its status and its output."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


async def ask(router: Router, *words: str) -> tuple[int, str, str]:
    return await hedgerow(*words, "--admin", f"127.0.0.1:{router.app.admin_port}")


@scenario
async def test_the_fleet_is_printed_and_a_replica_drained_and_returned() -> None:
    async with running(json_ok, replica={"id": "odd/id?#%"}) as router:
        status, out, err = await ask(router, "fleet")
        assert (status, err) == (0, "")
        assert out.startswith("1 of 1 replicas ready; 0 requests in flight; ")
        assert "odd/id?#% " in out
        replica = router.app.parts.fleet.replicas["odd/id?#%"]
        for action, state in (("cordon", "cordoned"), ("drain", "drained"), ("uncordon", "ready")):
            said = await ask(router, action, "odd/id?#%")
            assert said == (0, f"odd/id?#%: {state}, 0 requests in flight\n", "")
            assert replica.state(router.app.parts.fleet.clock()) == state


@scenario
async def test_the_token_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    async with running(json_ok, admin=WITH_TOKEN) as router:
        status, _, err = await ask(router, "drain", "r0")
        assert status == 1
        assert "needs the admin token" in err
        assert err.endswith("; see --token-file\n")
        assert (await ask(router, "drain", "r0", "--token-file", str(file)))[0] == 0
        status, _, err = await ask(router, "drain", "r0", "--token-file", str(tmp_path / "none"))
        assert (status, "No such file" in err) == (1, True)


@scenario
async def test_an_admin_port_with_https() -> None:
    tls = AdminTls(cert=CERT, key=KEY)
    async with running(json_ok, admin=Admin(listen="127.0.0.1:0", tls=tls)) as router:
        address = f"https://localhost:{router.app.admin_port}"
        status, out, err = await hedgerow("fleet", "--admin", address, "--ca", CERT)
        assert (status, err) == (0, "")
        assert out.startswith("1 of 1 replicas ready")
        status, _, err = await hedgerow("fleet", "--admin", address)
        assert (status, "certificate verify failed" in err) == (1, True)


@scenario
async def test_mistakes_say_what_to_do() -> None:
    async with running(answer(json_response({"detail": "Not Found"}, 404))) as router:
        status, _, err = await ask(router, "drain", "nobody")
        assert (status, err) == (1, "hedgerow: there is no replica 'nobody'\n")
        status, _, err = await hedgerow("fleet", "--admin", f"127.0.0.1:{router.port}")
        assert (status, err) == (1, "hedgerow: the admin port answered 404 Status\n")
    status, _, err = await hedgerow("fleet", "--admin", f"127.0.0.1:{free_port()}")
    assert status == 1
    assert "no answer from the admin port 127.0.0.1:" in err
    assert err.endswith(": Connection refused; see --admin\n")
    for address in ("9901", "ftp://a:1", "a:b", "http://"):
        status, _, err = await hedgerow("fleet", "--admin", address)
        assert (status, err.startswith(f"hedgerow: --admin {address}: ")) == (2, True)
    assert (await hedgerow("drain"))[0] == 2
