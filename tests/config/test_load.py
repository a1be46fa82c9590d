"""Loading: a configuration is valid as a whole, or every problem is listed with its path."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies.contract import policy_names
from router.config.document import MAX_BYTES
from router.config.keys import KeyLine, hash_of, line_of
from router.config.load import load, parse
from router.config.model import Config, Emulator, Replica
from router.config.shown import as_yaml
from router.config.tls import token_of
from router.core.errors import ConfigError
from router.fleet.engines.common.registry import ENGINES, PRIVATE_MEMBERS
from tests.addons.needed import needs

DATA = Path(__file__).parent / "data"
REPLICA = "replicas: [http://gpu-1:8000]\n"


def problems_of(text: str, overrides: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, overrides)
    return caught.value.problems


# Values of a valid configuration.


def test_an_empty_file_with_a_replica_flag_is_all_defaults() -> None:
    config = parse("", {"replicas": [{"url": "http://gpu-1:8000"}]})
    assert config == Config(replicas=(Replica(url="http://gpu-1:8000", id="gpu-1:8000"),))


def test_an_address_may_be_only_a_port() -> None:
    assert parse(REPLICA + "listen: 8080") == parse(REPLICA + "listen: '8080'")


@pytest.mark.parametrize("section", ["upstream", "admin"])
def test_a_token_may_be_in_the_environment(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "secret")
    config = parse(f"{REPLICA}{section}: {{token_env: ENGINE_KEY}}")
    assert token_of(getattr(config, section)) == "secret"


def test_files_of_another_machine_are_not_read() -> None:
    text = REPLICA + (
        "upstream: {token_env: NONE_SUCH, ca_file: /none/ca}\n"
        "admin: {listen: '0.0.0.0:9901', token_file: /none/token}\n"
        "keys: {file: /none/keys, required: true}\n"
        "tls: {cert: /none/cert, key: /none/key}\n"
        "access_log: {path: /none/log}\n"
        "pools: {p: {credential: {token_file: /none/p}}}\n"
        "prefix: {tokenizers: {m: /none/folder}}\n"
    )
    assert len(problems_of(text)) == 8
    assert parse(text, reads_files=False).admin.token_file == "/none/token"
    with pytest.raises(ConfigError):  # All else is checked.
        parse(text + "zzz: 1", reads_files=False)


def test_emulation_needs_no_replica() -> None:
    assert parse("", {"emulate": {"count": 3}}) == Config(emulate=Emulator(count=3))


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "hedgerow.yaml"
    file.write_text(
        "\ufefflisten: '[::1]:8081'\n"
        "replicas:\n"
        "  - http://gpu-1:8000\n"
        "  - {url: 'https://gpu-2/x', id: two, models: [no, b], weight: 2, max_inflight: 8}\n"
        "routing: {policy: p2c}\n"
        "timeouts: {total: 1e3}\n"
        "limits:\n"
        "health: {path: /ping}\n"
    )
    config = load(file)
    assert config.listen == "[::1]:8081"
    assert config.replicas == (
        Replica(url="http://gpu-1:8000", id="gpu-1:8000"),
        Replica(url="https://gpu-2/x", id="two", models=("no", "b"), weight=2.0, max_inflight=8),
    )
    assert config.routing.policy == "p2c"
    assert config.timeouts.total_s == 1000.0
    assert config.limits == Config().limits


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("['0.0.0.0:80', '[::]:80']", "0.0.0.0:80, [::]:80"),
        ("[80, '[::]:80']", "80, [::]:80"),
        ("'0.0.0.0:80,[::]:80'", "0.0.0.0:80,[::]:80"),
        ("['127.0.0.1:0', '127.0.0.1:0', 'a.test:1', '127.0.0.1:1']", None),
    ],
)
def test_several_addresses_are_one_text(text: str, listen: str | None) -> None:
    config = parse(f"{REPLICA}listen: {text}")
    assert listen is None or config.listen == listen
    assert parse(as_yaml(config)) == config


def test_flags_go_over_the_file_field_by_field(tmp_path: Path) -> None:
    file = tmp_path / "hedgerow.yaml"
    file.write_text(f"{REPLICA}listen: 127.0.0.1:1\nrouting: {{policy: p2c, options: {{}}}}\n")
    config = load(file, {"routing": {"policy": "random"}, "replicas": [{"url": "http://other:1"}]})
    assert config.listen == "127.0.0.1:1"
    assert config.routing.policy == "random"
    assert [replica.id for replica in config.replicas] == ["other:1"]


def test_the_configuration_is_frozen() -> None:
    with pytest.raises(AttributeError):
        parse(REPLICA).limits.head = 1  # type: ignore[misc]


def test_every_default_passes_its_own_range() -> None:
    """Defaults are not decoded, so no other check would find one that is out of range."""
    data = msgspec.to_builtins(parse(REPLICA))
    data = {key: value for key, value in data.items() if value is not None}
    assert msgspec.convert(data, Config) == parse(REPLICA)


# Errors of an invalid configuration, all in one report.


def test_all_problems_are_listed_each_with_its_path() -> None:
    problems = problems_of(
        """
listen: nowhere
limits: {haed: 1, head: 10, body: much}
timeouts: {connect: -1, total: .nan, token_gap: .inf}
replicas:
  - http://gpu-1:8000
  - http://GPU-1:8000/
  - {url: "gpu-3:8000", weight: 0}
  - {id: nameless}
  - 7
routing: {policy: p2d}
trusted_proxies: [10.0.0.1/8]
allow_paths: [metrics]
"""
    )
    assert sorted(problems) == sorted(
        [
            "limits.haed: unknown key; did you mean head?",
            "limits.body: must be a size such as 512KiB, 64MiB or 1GB, not 'much'",
            "limits.head: must be at least limits.request_line (8KiB), not 10B",
            "timeouts.connect: must be above 0s",
            "timeouts.total: must be a finite number",
            "timeouts.token_gap: must be a finite number",
            "replicas[1].url: is the same engine as replicas[0]; list it only once",
            "replicas[2].weight: must be above 0",
            "replicas[2].url: 'gpu-3:8000' has no scheme; write http://gpu-3:8000",
            "replicas[3].url: is missing",
            "replicas[4]: must be a mapping, not a whole number",
            "listen: 'nowhere' has no port; write HOST:PORT",
            "routing.policy: unknown policy 'p2d'; did you mean p2c? "
            f"(known: {', '.join(policy_names())})",
            "trusted_proxies[0]: 10.0.0.1/8 has host bits set",
            "allow_paths[0]: must start with a slash: /metrics",
        ]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("policy: p2c", "policy: unknown key; did you mean routing.policy?"),
        (
            "routing: {models: {m: {policy: p2x}}}",
            "routing.models.m.policy: unknown policy 'p2x'; did you mean p2c? (known: ",
        ),
        (
            "routing: {models: {m: {policy: p2c, options: {depth: 1}}}}",
            "routing.models.m.options.depth: unknown option of p2c (known: none)",
        ),
        (
            "hedging: {policy: adaptiv}",
            "hedging.policy: unknown policy 'adaptiv'; did you mean adaptive? (known: adaptive, ",
        ),
        (
            "hedging: {options: {delay_s: 1}}",
            "hedging.options.delay_s: unknown option of adaptive (known: least_s, margin, price)",
        ),
        (
            "hedging: {policy: fixed, options: {delay_s: soon}}",
            "hedging.options.delay_s: fixed: Expected `float`, got `str`",
        ),
        (
            "hedging: {policy: immediate, options: {utilisation: 2}}",
            "hedging.options.utilisation: utilisation must be a share, 0 to 1",
        ),
        ("hedging: {delay: {low: 1s}}", "hedging.delay.low: low is not one of hedging.classes"),
        ("hedging: {delay: {high: soon}}", "hedging.delay.high: must be a duration"),
        ("hedging: {budget: 1.5}", "hedging.budget: must be at most 1"),
        ("routing: {models: [m]}", "routing.models: must be a mapping, not a list"),
        (
            "prefix: {tokenizers: {m: /no/such/folder}}",
            "prefix.tokenizers.m: there is no file or folder '/no/such/folder'",
        ),
        (
            "priority: {default: urgent}",
            "priority.default: must be one of critical, high, normal, low, batch",
        ),
        (
            "priority: {tiers: {gold: top}}",
            "priority.tiers.gold: must be one of critical, high, normal, low, batch",
        ),
        (
            "priority: {dialects: {m: llama}}",
            "priority.dialects.m: must be one of engine, hedgerow",
        ),
        ("priority: {rules: [{header: x-a}]}", "priority.rules[0].priority: is missing"),
        (
            "priority: {rules: [{priority: low}]}",
            "priority.rules[0]: has no header, model or network, so it matches every request",
        ),
        (
            "priority: {rules: [{priority: low, model: m, value: x}]}",
            "priority.rules[0].value: needs header: the name of the header field",
        ),
        (
            "priority: {rules: [{priority: low, header: 'x y'}]}",
            "priority.rules[0].header: is not the name of a header field",
        ),
        (
            "priority: {rules: [{priority: low, header: Authorization}]}",
            "priority.rules[0].header: Authorization cannot be used",
        ),
        (
            "priority: {rules: [{priority: low, network: 10.0.0.1/8}]}",
            "priority.rules[0].network: 10.0.0.1/8 has host bits set",
        ),
        (
            "keys: {required: true}",
            "keys.required: needs keys.file or keys.folder: without it no key is known",
        ),
        (
            "keys: {file: /no/such/file}",
            "keys.file: '/no/such/file' cannot be read: No such file or directory",
        ),
        (
            "keys: {user_header: x_user}",
            "keys.user_header: is not the name of a header field",
        ),
        ("repicas: []", "repicas: unknown key; did you mean replicas?"),
        ("zzz: 1", "zzz: unknown key"),
        ("12: 1", "12: unknown key"),
        ("listen: 8080.5", "listen: must be text, not a number"),
        ("admin: 9901", "admin.listen: a port alone would listen on every interface; write 127."),
        ("port: 8080", "port: unknown key; did you mean listen?"),
        ("worker_urls: [http://a]", "worker_urls: unknown key; did you mean replicas?"),
        ("workers: [http://a]", "workers: must be a whole number, not a list"),
        ("token: a", "token: unknown key; did you mean upstream.token_file?"),
        (
            "routing: {policy: cache_aware}",
            "routing.policy: unknown policy 'cache_aware'; did you mean kv_aware? (known: ",
        ),
        ("listen:", "listen: must be text, not nothing"),
        (
            "listen: 'localhost:1'\nadmin: 'LocalHost:1'",
            "admin.listen: has the port of listen (localhost:1); use another port",
        ),
        (
            "listen: ['127.0.0.1:1', 'LOCALHOST:2', 'localhost:2']",
            "listen: has the port of listen (127.0.0.1:1, LOCALHOST:2, localhost:2); use another",
        ),
        ("listen: ['[::]:1', '[::1]:1']", "listen: has the port of listen ([::]:1, [::1]:1)"),
        ("listen: [1, a.test:1]", "listen: has the port of listen (1, a.test:1)"),
        ("listen: ['127.0.0.1:1', b]", "listen: 'b' has no port; write HOST:PORT"),
        ("listen: ['127.0.0.1:1,']", "listen: '' has no port; write HOST:PORT"),
        ("listen: []", "listen: must be text, not a list"),
        ("listen: [1, {}]", "listen: must be text, not a list"),
        ("listen: [1]\nadmin: '127.0.0.1:1'", "admin.listen: has the port of listen (1)"),
        (
            "admin: 127.0.0.1:8080",
            "admin.listen: has the port of listen (0.0.0.0:8080); use another port",
        ),
        (
            "admin: {probes_listen: '0.0.0.0:9901'}",
            "admin.probes_listen: has the port of admin.listen (127.0.0.1:9901); use another port",
        ),
        ("admin: {hosts: ['a b']}", "admin.hosts[0]: 'a b' is not a host name"),
        ("admin: {hosts: [a.com, '*']}", "admin.hosts[1]: '*' is not a host name"),
        ("admin: {hosts: ['*.A.com']}", "admin.hosts[0]: '*.A.com' must be in lower case, "),
        ("routing: p2c", "routing: must be a mapping, not text"),
        ("routing: {policy: zzz}", "routing.policy: unknown policy 'zzz' (known: "),
        ("routing: {options: []}", "routing.options: must be a mapping, not a list"),
        (
            "routing: {options: {choices: 2}}",
            "routing.options.choices: unknown option of kv_aware (known: absolute, ",
        ),
        ("debug_headers: yes", "debug_headers: must be true or false, not text"),
        ("debug_headers: 1", "debug_headers: must be true or false, not a whole number"),
        ("retry: {attempts: 0}", "retry.attempts: must be at least 1"),
        ("retry: {attempts: true}", "retry.attempts: must be a whole number, not true or false"),
        ("retry: {budget: 1.5}", "retry.budget: must be at most 1"),
        ("timeouts: {head: 1e9}", "timeouts.head: must be at most 10000000"),
        ("timeouts: {pool_age: 1}", "timeouts.pool_age: must be at least timeouts.pool_idle"),
        ("health: {eject_max: 1}", "health.eject_max: must be at least health.eject_base"),
        ("health: {path: ping}", "health.path: must start with a slash: /ping"),
        ("limits: {write_low: 65536}", "limits.write_high: must be above limits.write_low (64KiB)"),
        ("limits: {body: 1000000000}", "limits.bodies_total: must be at least limits.body"),
        ("allow_paths: /metrics", "allow_paths: must be a list, not text"),
        (
            "bodies: {allow: [kv_transfer_param]}",
            "bodies.allow[0]: 'kv_transfer_param' is never refused; use one of "
            + ", ".join(sorted(PRIVATE_MEMBERS)),
        ),
        ("allow_paths: ['/a?b']", "allow_paths[0]: must not have a query"),
        ("allow_paths: ['/a b']", "allow_paths[0]: must be visible ASCII characters only"),
        ("trusted_proxies: [fleet]", "trusted_proxies[0]: 'fleet' does not appear to be"),
        ("via: a b", "via: must be 1 to 64 letters"),
        (
            "upstream: {token: a, token_file: b}",
            "upstream: may have only one of token, token_file and token_env",
        ),
        (
            "upstream: {token_env: A, token_file: b}",
            "upstream: may have only one of token, token_file and token_env",
        ),
        ("upstream: {token_env: NONE_SUCH}", "upstream.token_env: 'NONE_SUCH' is not in the envi"),
        ("upstream: {token: '${KEY}'}", "upstream.token: the variable in '${KEY}' is not replaced"),
        ("upstream: {token: $KEY}", "upstream.token: the variable in '$KEY' is not replaced"),
        ("via: '${NAME:-x}'", "via: the variable in '${NAME:-x}' is not replaced"),
        ("admin: $(HOST):9901", "admin: the variable in '$(HOST):9901' is not replaced"),
        ("upstream: {token: 'a b'}", "upstream.token: a token is one word"),
        ("upstream: {server_name: a/b}", "upstream.server_name: 'a/b' is not a host name"),
        ("access_log: {path: /none/at/all}", "access_log.path: there is no directory '/none/at'"),
        ("access_log: {path: /}", "access_log.path: '/' is a directory"),
        pytest.param(
            "usage: {file: /none/at/all}",
            "usage.file: there is no directory '/none/at'",
            marks=needs("usage"),
        ),
        pytest.param(
            "batches: {enabled: true, folder: /none/at/all}",
            "batches.folder: there is no directory '/none/at'",
            marks=needs("batches"),
        ),
        (
            "batches: {folder: /tmp/batches}",
            "batches.folder: has no effect without batches.enabled: true",
        ),
        (
            "batches: {folder: /tmp/batches, enabled: false}",
            "batches.folder: has no effect without batches.enabled: true",
        ),
        ("batches: {lines: 2000000}", "batches.lines: must be at most 1000000"),
        ("emulate: {count: 2}", "emulate.count: cannot be used with replicas"),
        ("emulate: {count: 65}", "emulate.count: must be at most 64"),
        ("tls: {cert: /none}", "tls.key: is missing"),
        ("region: e u", "region: the name of a region is 1 to 64 letters"),
        ("regions: {spill_at: 2}", "regions.spill_at: must be at most 1"),
        ("regions: {spill_at: 0.5}", "regions.return_at: must be at most regions.spill_at (0.5)"),
        ("regions: {networks: {eu: eu}}", "regions.networks.eu: 'eu' does not appear to be"),
        ("regions: {networks: {10.0.0.0/8: ''}}", "regions.networks.10.0.0.0/8: the name of"),
        (
            "regions: {distances: [{start: eu, end: eu, rtt: 1ms}]}",
            "regions.distances[0]: start and end must be two regions",
        ),
        (
            "regions: {distances: [{start: eu, end: 'u/s', rtt: 1ms}]}",
            "regions.distances[0].end: the name of a region",
        ),
        (
            "regions: {distances: [{start: eu, end: us, rtt: fast}]}",
            "regions.distances[0].rtt: must be a duration",
        ),
        ("keys: {user_header: x-region}", "keys.user_header: x-region cannot be used"),
    ],
)
def test_one_mistake_gives_one_line(text: str, problem: str) -> None:
    problems = problems_of(REPLICA + text)
    assert len(problems) == 1
    assert problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ("", "replicas: at least one is needed"),
        ("[]", "replicas: at least one is needed"),
        ("http://gpu-1", "replicas: must be a list, not text"),
        (
            "['http://a,http://b']",
            "replicas[0].url: 'http://a,http://b' is more than one URL; give each by itself",
        ),
        (
            "[{url: 'http://a', models: [m]}, {url: 'http://a'}]",
            "replicas[1].url: is the same engine",
        ),
        ("[{url: 'http://a', models: []}]", 'replicas[0].models: is empty; name models, or "*"'),
        (
            "[{url: 'http://a', unknown_models: no}]",
            "replicas[0].unknown_models: must be one of reject, forward",
        ),
        (
            "[{url: 'http://a', id: x}, {url: 'http://b', id: x}]",
            "replicas[1].id: 'x' is already the id",
        ),
        (
            "[{url: 'http://a'}, {url: 'http://b', id: 'a:80'}]",
            "replicas[1].id: 'a:80' is already the id",
        ),
        ("[{url: 'http://a', id: 'x\"y'}]", "replicas[0].id: must be visible ASCII"),
        ("[{url: 'http://a', models: ['']}]", "replicas[0].models[0]: a model's name"),
        ("[{url: 'http://a', models: [1]}]", "replicas[0].models[0]: must be text"),
        ("[{url: 'http://a', max_inflight: 0}]", "replicas[0].max_inflight: must be at least 1"),
        (
            "[{url: 'http://a', engine: vlm}]",
            f"replicas[0].engine: must be one of {', '.join(ENGINES)}",
        ),
        (
            "[{url: 'http://a', kv_events: {endpoint: 'a:5557'}}]",
            "replicas[0].kv_events.endpoint: must be tcp://host:port",
        ),
        ("[{url: 'http://a', region: 'e/u'}]", "replicas[0].region: the name of a region is"),
        ("[{ur: 'http://a', url: 'http://a'}]", "replicas[0].ur: unknown key; did you mean url?"),
        ("[{url: 'http://a', model: m}]", "replicas[0].model: unknown key; did you mean models?"),
    ],
)
def test_a_bad_fleet_is_named(replicas: str, problem: str) -> None:
    problems = problems_of(f"replicas: {replicas}")
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_a_replica_without_a_region_is_in_that_of_the_router() -> None:
    text = "replicas: [{url: 'http://a'}, {url: 'http://b', region: us}]"
    assert [replica.region for replica in parse(text).replicas] == ["", "us"]
    found = parse(f"{text}\nregion: eu").replicas
    assert [(replica.id, replica.region) for replica in found] == [("a:80", "eu"), ("b:80", "us")]


def test_a_bad_file_of_keys_is_named(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    key = KeyLine(name="acme", hash=hash_of(b"k"), tier="gold")
    file.write_text(line_of(key))
    text = f"{REPLICA}keys: {{file: {file}}}"
    assert problems_of(text) == [
        "keys.file: acme has the tier 'gold', which is not among priority.tiers "
        "(known: enterprise, pro, free)"
    ]
    parse(f"{text}\npriority: {{tiers: {{gold: high}}}}")
    file.write_text("{}")
    (problem,) = problems_of(text)
    assert problem.startswith("keys.file: line 1: ")


def test_a_section_of_the_wrong_kind_is_not_hidden_by_a_flag() -> None:
    assert problems_of(f"{REPLICA}routing: p2c", {"routing": {"policy": "random"}}) == [
        "routing: must be a mapping, not text"
    ]


# Files.


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "is not UTF-8 (byte 0)"),
        (b"#" * (MAX_BYTES + 1), "is larger than"),
        (b"", "is empty; a file without settings must have a comment"),
        (b"\n \n", "is empty; "),
    ],
)
def test_an_unusable_file_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "hedgerow.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"{file}: {problem}")


def test_a_file_of_a_comment_is_all_defaults(tmp_path: Path) -> None:
    file = tmp_path / "hedgerow.yaml"
    file.write_text("# the flags have all settings")
    assert load(file, {"emulate": {"count": 3}}) == Config(emulate=Emulator(count=3))


def test_text_that_is_not_yaml_gives_one_line() -> None:
    assert problems_of("replicas: [") == [
        "not YAML: line 1, column 12: expected the node content, but found '<stream end>'"
    ]


def test_a_thousand_mistakes_are_listed_quickly() -> None:
    lines = "".join(f"  - {{url: 'x{index}', wieght: 1}}\n" for index in range(500))
    assert len(problems_of(f"replicas:\n{lines}")) == 1000


def test_tls_files_are_tried_before_anything_starts(tmp_path: Path) -> None:
    one, other = DATA / "one.pem", DATA / "other.key"
    text = REPLICA + "tls: {{cert: {}, key: {}}}"
    assert parse(text.format(one, DATA / "one.key")).tls is not None
    missing = problems_of(text.format(tmp_path / "none.pem", other))
    assert missing == [
        f"tls.cert: cannot read '{tmp_path / 'none.pem'}': No such file or directory"
    ]
    assert problems_of(text.format(one, other)) == ["tls.key: is not the key of tls.cert"]
    locked = problems_of(text.format(one, DATA / "locked.key"))
    assert locked[0].startswith("tls.cert: no usable PEM certificate and key")


def test_upstream_files_are_tried_too(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sk-secret\n")
    assert parse(f"{REPLICA}upstream: {{token_file: {token}, ca_file: {DATA / 'one.pem'}}}")
    token.write_text("sk-secret\nX-Injected: yes\n")
    assert problems_of(f"{REPLICA}upstream: {{token_file: {token}, ca_file: {token}}}") == [
        "upstream.token_file: a token is one word of visible ASCII characters",
        "upstream.ca_file: no usable PEM certificates (NO_CERTIFICATE_OR_CRL_FOUND)",
    ]
    assert problems_of(f"{REPLICA}upstream: {{ca_file: {token}, verify: false}}") == [
        "upstream.ca_file: has no effect when upstream.verify is false"
    ]


@pytest.mark.parametrize(
    ("url", "listener"),
    [
        ("http://localhost:8080/v2", "listen"),
        ("http://127.9.9.9:8080", "listen"),
        ("http://[::1]:8080", "listen"),
        ("https://[::ffff:9.9.9.9]:9901", "admin.listen"),
        ("http://9.9.9.9:9901", "admin.listen"),
        ("http://gpu-1:9902", "admin.probes_listen"),
        ("http://9.9.9.9:8080", ""),  # The machine of this check may be another one.
        ("http://127.0.0.1:9901", ""),
        ("http://gpu-2:9902", ""),
    ],
)
def test_a_listener_of_the_router_is_no_replica(url: str, listener: str) -> None:
    text = (
        "listen: 0.0.0.0:8080\n"
        "admin: {listen: '9.9.9.9:9901', probes_listen: 'gpu-1:9902', token: a}\n"
        f"replicas: ['{url}']\n"
    )
    try:
        parse(text)
        problems = []
    except ConfigError as err:
        problems = err.problems
    expected = f"replicas[0].url: is this router's own listener ({listener})"
    assert problems == ([expected] if listener else [])


@needs("share")
def test_an_invalid_url_of_a_store_is_a_problem() -> None:
    (problem,) = problems_of(REPLICA + "share: {url: 'http://:secret@redis:6379'}")
    assert problem.startswith("share.url: must be redis://")


@needs("share")
def test_the_missing_package_of_a_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.config.addons.find_spec", lambda name: None)
    problems = problems_of(REPLICA + "share: {url: 'redis://redis:6379'}")
    assert problems == ["share.url: needs redis: pip install '.[share]'"]
