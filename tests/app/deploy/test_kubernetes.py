"""The manifests in deploy/kubernetes and deploy/keda: valid, and what they name exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml

from router.cli import _parser
from router.config.load import parse
from router.config.model import Config, Discovery, KubernetesReplicas
from tests.addons.needed import needs
from tests.places import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
GATEWAY = KUBERNETES / "gateway"
DISCOVERY = KUBERNETES / "discovery"  # changes the gateway
PLACES = [GATEWAY, KUBERNETES / "sidecar"]
# Kinds that no Kubernetes version has: they belong to other projects.
FOREIGN = {"Kustomization", "ServiceMonitor", "ScaledObject"}
ENGINES_POLICY = "networkpolicy-engines.yaml"  # applied by hand
OLDEST = "1.29.0"  # the first version with sidecar containers by default
# The patch of the gateway's Deployment, which is no whole object.
PATCH = yaml.safe_load((DISCOVERY / "deployment.yaml").read_text())
BY_PLACE = pytest.mark.parametrize("folder", PLACES, ids=lambda path: path.name)

Object = dict[str, Any]


def objects(*folders: Path) -> Iterator[Object]:
    for folder in folders:
        for file in sorted(folder.glob("*.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                if "kind" in document:
                    yield document


def of_kind(folder: Path, kind: str) -> list[Object]:
    return [one for one in objects(folder) if one["kind"] == kind]


def pod_of(folder: Path) -> Object:
    (deployment,) = of_kind(folder, "Deployment")
    pod: Object = deployment["spec"]["template"]
    return pod


def router_of(folder: Path) -> Object:
    spec = pod_of(folder)["spec"]
    both = spec.get("initContainers", []) + spec["containers"]
    (found,) = [one for one in both if one["image"] == "hedgerow"]
    return dict(found)


def config_of(folder: Path, tmp_path: Path) -> Config:
    """The configuration of the folder, with a token file that exists."""
    token = tmp_path / "token"
    token.write_text("secret")
    return parse(
        (folder / "hedgerow.yaml").read_text().replace("/etc/hedgerow-admin/token", str(token))
    )


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_kubernetes_accepts_every_object(version: str) -> None:
    foreign = set()
    for one in objects(*PLACES, DISCOVERY, ROOT / "deploy" / "keda"):
        if one["kind"] in FOREIGN:
            foreign.add(one["kind"])
        elif one != PATCH:
            kubernetes_validate.validate(one, version, strict=True)
    assert foreign == FOREIGN


def test_a_wrong_field_is_not_accepted() -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, OLDEST, strict=True)


@BY_PLACE
def test_the_kustomization_names_files_that_exist(folder: Path) -> None:
    (found,) = of_kind(folder, "Kustomization")
    files = [*found["resources"], *found["configMapGenerator"][0]["files"]]
    assert all((folder / file).is_file() for file in files)
    assert {image["name"] for image in found["images"]} == {"hedgerow"}


@BY_PLACE
def test_the_pod_runs_a_command_that_the_program_has(folder: Path, tmp_path: Path) -> None:
    router = router_of(folder)
    args = _parser(router["args"]).parse_args(router["args"])
    (found,) = of_kind(folder, "Kustomization")
    generated = found["configMapGenerator"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in router["volumeMounts"]}
    (volume,) = [
        volume["name"]
        for volume in pod_of(folder)["spec"]["volumes"]
        if volume.get("configMap", {}).get("name") == generated["name"]
    ]
    assert [args.config] == [f"{mounts[volume]}/{file}" for file in generated["files"]]
    assert config_of(folder, tmp_path).replicas


@BY_PLACE
def test_ports_and_probes_are_those_of_the_configuration(folder: Path, tmp_path: Path) -> None:
    config = config_of(folder, tmp_path)
    router = router_of(folder)
    ports = {port["name"]: port["containerPort"] for port in router["ports"]}
    assert config.admin.probes_listen == f"0.0.0.0:{ports['probes']}"
    if "http" in ports:
        assert config.listen == f"0.0.0.0:{ports['http']}"
    else:  # a sidecar, which serves its own pod only
        assert config.listen.startswith("127.0.0.1:")
        (application,) = pod_of(folder)["spec"]["containers"]
        env = {one["name"]: one["value"] for one in application["env"]}
        assert env["OPENAI_BASE_URL"] == f"http://{config.listen}/v1"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in router:
            get = router[probe]["httpGet"]
            assert (get["path"], get["port"]) == (
                "/readyz" if probe == "readinessProbe" else "/livez",
                "probes",
            )


@BY_PLACE
def test_a_pod_may_finish_its_drain(folder: Path, tmp_path: Path) -> None:
    drain = config_of(folder, tmp_path).drain
    grace_s = pod_of(folder)["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > drain.lame_duck_s + drain.grace_s
    probe = router_of(folder).get("readinessProbe")
    if probe is not None:  # the endpoint leaves the Service before the port is closed
        assert drain.lame_duck_s > 2 * probe["periodSeconds"] * probe["failureThreshold"]


@BY_PLACE
def test_the_router_has_no_rights_that_it_does_not_need(folder: Path) -> None:
    spec = pod_of(folder)["spec"]
    router = router_of(folder)
    context = {**spec.get("securityContext", {}), **router["securityContext"]}
    (user,) = re.findall(
        r"^USER (\d+)", (ROOT / "deploy" / "docker" / "Dockerfile").read_text(), flags=re.MULTILINE
    )
    assert spec["automountServiceAccountToken"] is False
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, int(user))
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "cpu" not in router["resources"]["limits"]


@BY_PLACE
def test_the_admin_port_has_a_token_that_only_the_router_can_read(folder: Path) -> None:
    spec = pod_of(folder)["spec"]
    file = yaml.safe_load((folder / "hedgerow.yaml").read_text())["admin"]["token_file"]
    (secret,) = [one for one in spec["volumes"] if "secret" in one]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    mounts = {
        one["name"]: at["mountPath"]
        for one in containers
        for at in one.get("volumeMounts", [])
        if at["name"] == secret["name"]
    }
    assert mounts == {"hedgerow": file.removesuffix("/token")}
    assert secret["secret"]["defaultMode"] == 0o440
    assert spec["securityContext"]["fsGroup"] == router_of(folder)["securityContext"].get(
        "runAsUser", spec["securityContext"].get("runAsUser")
    )
    name = secret["secret"]["secretName"]
    text = (folder / "kustomization.yaml").read_text()
    assert f"create secret generic {name} \\\n#     --from-literal=token=" in text


def test_selectors_find_what_they_are_meant_for() -> None:
    gateway = KUBERNETES / "gateway"
    labels = pod_of(gateway)["metadata"]["labels"].items()
    names = {port["name"] for port in router_of(gateway)["ports"]}
    for service in of_kind(gateway, "Service"):
        assert service["spec"]["selector"].items() <= labels
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    (budget,) = of_kind(gateway, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels
    (monitor,) = of_kind(gateway, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (scraped,) = [
        one for one in of_kind(gateway, "Service") if wanted <= one["metadata"]["labels"].items()
    ]
    assert {at["port"] for at in monitor["spec"]["endpoints"]} <= {
        port["name"] for port in scraped["spec"]["ports"]
    }
    (scaler,) = of_kind(gateway, "HorizontalPodAutoscaler")
    (deployment,) = of_kind(gateway, "Deployment")
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaler["spec"]["minReplicas"] == deployment["spec"]["replicas"]


def test_the_network_policy_lets_the_router_reach_its_replicas(tmp_path: Path) -> None:
    gateway = KUBERNETES / "gateway"
    (ours,) = yaml.safe_load_all((gateway / "networkpolicy.yaml").read_text())
    (engines,) = yaml.safe_load_all((gateway / ENGINES_POLICY).read_text())
    ports = {port["port"] for rule in ours["spec"]["egress"] for port in rule["ports"]}
    config = config_of(gateway, tmp_path)
    assert {int(replica.url.rpartition(":")[2]) for replica in config.replicas} <= ports
    (rule,) = engines["spec"]["ingress"]
    router, monitoring = rule["from"]
    selected = router["podSelector"]["matchLabels"].items()
    assert selected <= pod_of(gateway)["metadata"]["labels"].items()
    assert monitoring == ours["spec"]["ingress"][1]["from"][0]  # Prometheus also reads the engines.
    (to_engines,) = [rule for rule in ours["spec"]["egress"] if rule["ports"][0]["port"] == 8000]
    assert engines["spec"]["podSelector"] == to_engines["to"][0]["podSelector"]
    # The admin port is reachable by nobody.
    open_ports = {port["port"] for rule in ours["spec"]["ingress"] for port in rule["ports"]}
    assert open_ports == {8080, 9902}


@pytest.mark.parametrize("folder", [*PLACES, DISCOVERY], ids=lambda path: path.name)
def test_a_kustomization_limits_no_pod_but_the_routers(folder: Path) -> None:
    """A policy for the engines would cut off their present clients."""
    (found,) = of_kind(folder, "Kustomization")
    labels = pod_of(GATEWAY)["metadata"]["labels"]
    for file in found["resources"]:
        if (folder / file).is_file():
            for one in yaml.safe_load_all((folder / file).read_text()):
                if one["kind"] == "NetworkPolicy":
                    selected = one["spec"]["podSelector"]["matchLabels"]
                    assert selected and selected.items() <= labels.items(), file


@needs("kubernetes")
def test_discovery_changes_what_the_gateway_has(tmp_path: Path) -> None:
    (found,) = of_kind(DISCOVERY, "Kustomization")
    files = [*found["resources"], *found["configMapGenerator"][0]["files"]]
    files += [patch["path"] for patch in found["patches"]]
    assert all((DISCOVERY / file).exists() for file in files)
    (base,) = of_kind(GATEWAY, "Kustomization")
    assert found["configMapGenerator"][0]["name"] == base["configMapGenerator"][0]["name"]
    assert found["images"] == base["images"]
    (deployment,) = of_kind(GATEWAY, "Deployment")
    assert PATCH["metadata"]["name"] == deployment["metadata"]["name"]
    assert PATCH["spec"] == {"template": {"spec": {"automountServiceAccountToken": True}}}
    before, after = config_of(GATEWAY, tmp_path), config_of(DISCOVERY, tmp_path)
    assert after.replicas == ()
    assert msgspec.structs.replace(after, discovery=Discovery(), replicas=before.replicas) == before


@needs("kubernetes")
def test_discovery_may_do_what_the_client_does_and_nothing_else() -> None:
    """The rule in the comment is that for pods."""
    from router.addons.kubernetes.client import KubernetesClient

    text = (DISCOVERY / "role.yaml").read_text()
    for source, role in (
        (KubernetesReplicas(service="vllm"), text),
        (
            KubernetesReplicas(pods="app=vllm"),
            re.sub("^  - .*\n  #-", "  -", text, flags=re.MULTILINE),
        ),
    ):
        path = KubernetesClient(None, source, "inference", 1.0)._path
        *api, _, _, resource = path.strip("/").split("/")
        group = api[1] if api[0] == "apis" else ""
        (rules,) = [one["rules"] for one in yaml.safe_load_all(role) if one["kind"] == "Role"]
        assert rules == [
            {"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]}
        ]


def test_the_role_is_bound_to_the_account_of_the_router() -> None:
    (role,), (binding,) = of_kind(DISCOVERY, "Role"), of_kind(DISCOVERY, "RoleBinding")
    (account,) = of_kind(GATEWAY, "ServiceAccount")
    (found,) = of_kind(DISCOVERY, "Kustomization")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (
        account["metadata"]["name"],
        found["namespace"],
    )
    assert pod_of(GATEWAY)["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_the_router_of_discovery_can_reach_the_api_server() -> None:
    (policy,) = of_kind(DISCOVERY, "NetworkPolicy")
    labels = pod_of(GATEWAY)["metadata"]["labels"].items()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels
    (rule,) = policy["spec"]["egress"]
    assert {port["port"] for port in rule["ports"]} == {443, 6443}
