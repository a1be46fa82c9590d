"""The documents link to files that exist, and name tests that exist."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from policies.contract import policy_names
from router.config.reference import page
from tests.addons.needed import needs
from tests.places import ROOT

FOLDERS = ("deploy/**", "policies", "docs/**", "bench")
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(d for f in FOLDERS for d in ROOT.glob(f"{f}/*.md"))})
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(document: Path) -> None:
    links = LINK.findall(document.read_text())
    assert [to for to in links if "://" not in to and not (document.parent / to).exists()] == []


@needs("batches", "kubernetes", "usage")
def test_every_test_of_the_security_table_exists() -> None:
    text = (ROOT / "deploy" / "README.md").read_text()
    rows = text.partition("## Security")[2].splitlines()
    named = [name for row in rows for name in re.findall(r"`([\w/]+/(?:\w+\.py)?)`", row)]
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


def test_every_alert_has_a_row_in_the_runbook() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "hedgerow.rules.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    text = (ROOT / "deploy" / "README.md").read_text()
    rows = re.findall(r"^\| (`Hedgerow[^|]*) \|", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == alerts


def test_every_setting_of_the_migration_tables_exists() -> None:
    """In the right column; `*` and `[]` stand for any name and any item."""
    reference = page()
    known = set(re.findall(r"^- `([\w.*\[\]]+)`", reference, re.MULTILINE))
    known |= set(re.findall(r"^## ([\w.*\[\]]+)$", reference, re.MULTILINE))
    known |= set(policy_names())
    text = (ROOT / "deploy" / "migration.md").read_text()
    rows = [row.split("|") for row in text.splitlines() if row.startswith("| `")]
    wanted = {
        name.replace("classes.*", "classes.normal")
        for row in rows
        for name in re.findall(r"`([a-z_]+(?:\.[\w*]+|\[\]\.\w+)+)(?=[`:])", row[2])
    }
    assert len(wanted) > 20
    assert wanted - known == set()


# The flags of other routers, by the title of their table in deploy/migration.md.
FLAGS = {
    # vllm-project/router (1700eefa), and the router of SGLang (083d6013 and newer for TLS)
    "From vllm-router and sglang-router": """
        host port worker-urls policy prefill-policy decode-policy mini-lb pd-disaggregation
        vllm-pd-disaggregation prefill decode worker-startup-timeout-secs
        worker-startup-check-interval cache-threshold balance-abs-threshold balance-rel-threshold
        eviction-interval-secs max-tree-size max-payload-size intra-node-data-parallel-size
        dp-aware enable-igw api-key log-dir log-level service-discovery selector
        service-discovery-port service-discovery-namespace prefill-selector decode-selector
        vllm-discovery-address kv-connector prometheus-port prometheus-host request-id-headers
        request-timeout-secs retry-max-retries retry-initial-backoff-ms retry-max-backoff-ms
        retry-backoff-multiplier retry-jitter-factor disable-retries cb-failure-threshold
        cb-success-threshold cb-timeout-duration-secs cb-window-duration-secs
        disable-circuit-breaker health-failure-threshold health-success-threshold
        health-check-timeout-secs health-check-interval-secs health-check-endpoint
        max-concurrent-requests queue-size queue-timeout-secs rate-limit-tokens-per-second
        cors-allowed-origins model-path tokenizer-path tls-cert-path tls-key-path ca-cert-paths
        client-cert-path client-key-path enable-trace otlp-traces-endpoint
    """,
    # vllm-project/production-stack (008a23bd)
    "From production-stack": """
        host port service-discovery k8s-service-discovery-type static-backends static-models
        static-aliases static-model-types static-model-labels static-backend-health-checks k8s-port
        k8s-namespace k8s-label-selector k8s-watcher-timeout-seconds
        backend-health-check-timeout-seconds routing-logic lmcache-controller-port session-key
        callbacks request-rewriter enable-batch-api file-storage-class file-storage-path
        batch-processor engine-stats-interval request-stats-window log-stats log-stats-interval
        dynamic-config-yaml dynamic-config-json feature-gates log-level sentry-dsn
        sentry-traces-sample-rate sentry-profile-session-sample-rate otel-endpoint
        otel-service-name otel-secure prefill-model-labels decode-model-labels kv-aware-threshold
        lmcache-health-check-interval lmcache-worker-timeout
    """,
}


@pytest.mark.parametrize("title", FLAGS)
def test_the_migration_table_names_every_flag(title: str) -> None:
    """Also those without a counterpart. `*` stands for any end of a name."""
    text = (ROOT / "deploy" / "migration.md").read_text()
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"--([\w*-]+)", row)}
    assert [flag for flag in FLAGS[title].split() if not any(fnmatch(flag, n) for n in named)] == []
