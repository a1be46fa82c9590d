"""The replica that tokenizes a prompt is in an allowed region, because it gets the prompt."""

from typing import Any, cast

from policies.allowed import Allowed
from router.addons.kv_events.token_ids import TokenIds
from tests.fleet.helpers import Table
from tests.harness.running import scenario


@scenario
async def test_a_prompt_is_tokenized_in_an_allowed_region_only() -> None:
    table = Table()
    for number, region in enumerate(("us", "eu", "us", "eu", "us")):
        url = f"http://127.0.0.1:{9000 + number}"
        table.add(f"{region}-{number}", engine="vllm", region=region, url=url)
    ids = TokenIds(cast(Any, None), table.fleet)

    def asked(allowed: Allowed | None) -> set[str]:
        targets = [ids._target("m", allowed) for _ in range(20)]
        return {target.url for target in targets if target is not None}

    assert len(asked(None)) == 5
    assert asked(Allowed(["eu"])) == {
        "http://127.0.0.1:9001/tokenize",
        "http://127.0.0.1:9003/tokenize",
    }
    assert asked(Allowed(["mars"])) == set()
    table.close()
