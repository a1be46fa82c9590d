"""The settings of discovery, and files with lists of replicas."""

import pytest

from router.config.load import parse, parse_replicas
from router.config.model import Config, DnsName, KubernetesReplicas, Pool, Replica
from router.config.shown import as_yaml
from router.core.errors import ConfigError
from tests.addons.needed import needs

NAME = "http://vllm.svc:8000"


def test_the_settings_are_read() -> None:
    config = parse(
        "discovery: {files: [/run/replicas], ttl_min: 5s, nameservers: ['127.0.0.1:5353'], "
        f"dns: [{NAME}, {{url: 'http://_h._tcp.vllm.svc', records: srv, engine: vllm}}]}}"
    )
    assert config.replicas == ()
    assert config.discovery.dns == (
        DnsName(url=NAME),
        DnsName(url="http://_h._tcp.vllm.svc", records="srv", engine="vllm"),
    )


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("dns: ['vllm.svc']", "dns[0].url: 'vllm.svc' has no scheme"),
        ("dns: ['http://10.0.0.1']", "dns[0].url: has an address instead of a name"),
        (f"dns: [{{url: '{NAME}', records: srv}}]", "dns[0].url: must have no port"),
        (f"dns: ['{NAME}', '{NAME}']", "dns[1].url: is the same name as discovery.dns[0]"),
        (f"dns: [{{url: '{NAME}', models: []}}]", "dns[0].models: is empty"),
        (f"dns: [{{url: '{NAME}', region: 'e u'}}]", "dns[0].region: the name of a region"),
        (f"dns: [{{url: '{NAME}', pool: p}}]", "dns[0].pool: there is no pool 'p' in pools"),
        (f"dns: [{{url: '{NAME}', credential: {{}}}}]", "dns[0].credential: needs one of"),
        (f"dns: ['{NAME}/$']", "dns[0].url: the IDs of its replicas cannot be used: an ID must"),
        (f"dns: [{{url: '{NAME}', id: a}}]", "dns[0].id: unknown key"),
        ("files: ['']", "files[0]: is empty"),
        ("files: [a, b, a]", "files[2]: is listed twice"),
        ("files: [a], nameservers: [dns.svc]", "nameservers[0]: 'dns.svc' has no port"),
        ("files: [a], nameservers: ['dns.svc:53']", "nameservers[0]: 'dns.svc:53' is not an"),
        ("files: [a], ttl_max: 500ms", "ttl_max: must be at least discovery.ttl_min (1s)"),
        ("files: [a], retry_max: 500ms", "retry_max: must be at least discovery.ttl_min (1s)"),
        ("files: [a], replicas_max: 0", "replicas_max: must be at least 1"),
        ("kubernetes: [{}]", "kubernetes[0]: needs either service or pods"),
        ("kubernetes: [{service: a, pods: b=c}]", "kubernetes[0]: needs either service or pods"),
        ("kubernetes: [vllm]", "kubernetes[0]: must be a mapping, not text"),
        ("kubernetes: [{service: a/b}]", "kubernetes[0].service: must be 1 to 63 lower case"),
        ("kubernetes: [{service: a, namespace: B}]", "kubernetes[0].namespace: must be 1 to 63"),
        ("kubernetes: [{pods: ' a=b'}]", "kubernetes[0].pods: must be a label selector"),
        (f"kubernetes: [{{pods: {'a' * 201}}}]", "kubernetes[0].pods: must be a label selector"),
        ("kubernetes: [{service: a, port: 0}]", "kubernetes[0].port: must be 1 to 65535"),
        ("kubernetes: [{service: a, port: '70000'}]", "kubernetes[0].port: must be 1 to 65535"),
        ("kubernetes: [{service: a, port: -1}]", "kubernetes[0].port: must be 1 to 63 lower case"),
        ("kubernetes: [{service: a, port: []}]", "kubernetes[0].port: must be a whole number or"),
        ("kubernetes: [{service: a, scheme: ftp}]", "kubernetes[0].scheme: must be one of http"),
        ("kubernetes: [{service: a, path: x}]", "kubernetes[0].path: must begin with /"),
        ("kubernetes: [{service: a, path: /v1}]", "kubernetes[0].path: leave out the /v1"),
        ("kubernetes: [{service: a, path: '/a/$'}]", "kubernetes[0].path: the IDs of its replicas"),
        ("kubernetes: [{service: a, kubeconfig: ''}]", "kubernetes[0].kubeconfig: is empty"),
        ("kubernetes: [{service: a, context: c}]", "kubernetes[0].context: needs kubeconfig"),
        ("kubernetes: [{service: a, url: 'http://a'}]", "kubernetes[0].url: unknown key"),
        ("kubernetes: [{service: a, models: []}]", "kubernetes[0].models: is empty"),
        ("kubernetes: [{service: a, pool: p}]", "kubernetes[0].pool: there is no pool 'p'"),
        ("kubernetes: [{service: a, region: 'e u'}]", "kubernetes[0].region: the name of a region"),
        (
            "kubernetes: [{service: a}, {service: a, weight: 2}]",
            "kubernetes[1]: is the same source as discovery.kubernetes[0]",
        ),
    ],
)
def test_a_mistake_is_named(section: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"discovery: {{{section}}}")
    assert caught.value.problems[0].startswith(f"discovery.{problem}")


@needs("kubernetes")
def test_the_sources_in_kubernetes_are_read() -> None:
    config = parse(
        "discovery: {kubernetes: [{service: vllm, port: 8000}, {pods: 'a=b,c', namespace: n, "
        "port: http, path: /x, kubeconfig: /k, context: eu, engine: vllm, spot: true}]}"
    )
    first, second = config.discovery.kubernetes
    assert first == KubernetesReplicas(service="vllm", port=8000)
    assert (second.pods, second.port, second.engine, second.spot) == ("a=b,c", "http", "vllm", True)
    assert (first.name, second.name) == ("kubernetes:vllm:8000", "kubernetes:eu/n/a=b,c:http")
    assert parse(as_yaml(config)) == config


def test_a_name_of_an_external_pool_states_its_models() -> None:
    pool = "pools: {cloud: {external: true}}\n"
    with pytest.raises(ConfigError) as caught:
        parse(f"{pool}discovery: {{dns: [{{url: '{NAME}', pool: cloud}}]}}")
    (problem,) = caught.value.problems
    assert problem == "discovery.dns[0].models: is needed in an external pool"
    parse(f"{pool}discovery: {{dns: [{{url: '{NAME}', pool: cloud, models: [m]}}]}}")


def test_the_credential_of_a_name_is_not_printed() -> None:
    config = parse(f"discovery: {{dns: [{{url: '{NAME}', credential: {{token: s3cret}}}}]}}")
    text = as_yaml(config)
    assert NAME in text
    assert "s3cret" not in text


def test_a_router_needs_replicas_or_a_source() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("discovery: {}")
    assert "a source of `discovery`" in caught.value.problems[0]
    with pytest.raises(ConfigError) as caught:
        parse("discovery: {files: [a]}\nemulate: {count: 1}")
    assert caught.value.problems[0].startswith("emulate.count: cannot be used with discovery")


@needs("kubernetes")
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.config.addons.find_spec", lambda name: None)
    parse("discovery: {files: [a]}")
    with pytest.raises(ConfigError) as caught:
        parse(f"discovery: {{dns: [{NAME}]}}")
    (problem,) = caught.value.problems
    assert problem == "discovery.dns: needs dns: pip install '.[dns]'"
    with pytest.raises(ConfigError) as caught:
        parse("discovery: {kubernetes: [{service: vllm}]}")
    (problem,) = caught.value.problems
    assert problem.endswith("needs kubernetes: pip install '.[kubernetes]'")


LISTS = (
    b"- http://gpu-1:8000\n- {url: 'http://gpu-2:8000', id: b, weight: 2}\n",
    b'["http://gpu-1:8000", {"url": "http://gpu-2:8000", "id": "b", "weight": 2}]',
    b'[\n\t"http://gpu-1:8000",\n\t{"url": "http://gpu-2:8000", "id": "b", "weight": 2}\n]\n',
    b"[http://gpu-1:8000, {url: 'http://gpu-2:8000', id: b, weight: 2}]",
)


@pytest.mark.parametrize("raw", LISTS)
def test_a_list_is_read_in_yaml_and_json(raw: bytes) -> None:
    # The roster adds the region of the router.
    assert parse_replicas(raw, Config(region="eu")) == (
        Replica(url="http://gpu-1:8000", id="gpu-1:8000"),
        Replica(url="http://gpu-2:8000", id="b", weight=2.0),
    )


@pytest.mark.parametrize("raw", [b"[]", b"[ ]\n", b"# nothing\n[]\n"])
def test_an_empty_list(raw: bytes) -> None:
    assert parse_replicas(raw, Config()) == ()


@pytest.mark.parametrize("raw", [b"", b"\n", b"# nothing\n", b"null"])
def test_an_empty_file_is_no_list(raw: bytes) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        parse_replicas(raw, Config())


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"replicas: [http://a]", "must be a list of replicas"),
        (b"{", "not YAML: "),
        (b'["http://a"', "not YAML: "),
        (b"\xff", "is not UTF-8"),
        (b"- http://a\n- http://a\n", "replicas[1].url: is the same engine as replicas[0]"),
        (b"- http://a\n- {url: 'http://b', weight: 0}", "replicas[1].weight: must be above 0"),
        (b"- {url: 'http://a', pool: p}", "replicas[0].pool: there is no pool 'p'"),
        (b"- {url: 'http://a', pool: cloud}", "replicas[0].models: is needed in an external"),
        (
            b"- {url: 'http://a', credential: {token_file: /none}}",
            "replicas[0].credential.token_file: ",
        ),
        (b"- {url: 'http://a', id: a/..}", "replicas[0].id: must have no segment . or .."),
        (b"- http://a/$", "replicas[0].id: 'a:80/$' is derived from url and cannot be used"),
        (b"- 7", "replicas[0]: must be a mapping, not a whole number"),
        (b"- *a", "not YAML: "),
        (b"[" * 100_000, "not YAML: "),
    ],
)
def test_a_bad_list_is_refused_as_a_whole(raw: bytes, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_replicas(raw, Config(pools={"cloud": Pool(external=True)}))
    assert caught.value.problems[0].startswith(problem)


def test_packages_of_another_machine_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.config.addons.find_spec", lambda name: None)
    parse("discovery: {kubernetes: [{service: engines}]}", reads_files=False)
