"""The settings of spot machines."""

import pytest

from router.config.load import parse
from router.core.errors import ConfigError
from tests.addons.needed import needs

REPLICA = "replicas: [{url: 'http://gpu-1:8000', spot: true}]\n"


@needs("spot_notices")
def test_the_settings_are_read() -> None:
    config = parse(
        f"{REPLICA}spot: {{notice_file: /run/notice, metadata: "
        "[{provider: aws, url: 'http://169.254.169.254', node: gpu-1}]}"
    )
    assert config.replicas[0].spot
    assert config.spot.metadata[0].node == "gpu-1"


@needs("spot_notices")
@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ("{provider: ibm, url: 'http://a'}", "provider: must be one of aws, gcp, azure"),
        ("{provider: aws, url: a}", "url: 'a' has no scheme"),
        ("{provider: gcp, url: 'http://a', node: n, replica: r}", "node: give either replica or"),
    ],
)
def test_a_mistake_is_named(metadata: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{REPLICA}spot: {{metadata: [{metadata}]}}")
    (found,) = caught.value.problems
    assert found.startswith(f"spot.metadata[0].{problem}")
