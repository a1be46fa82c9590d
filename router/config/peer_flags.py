"""Names the flag or the setting that replaces a flag of another router.

deploy/migration.md has the same flags with more words. Must never: accept such a flag.
"""

from __future__ import annotations

from typing import Final

_DISCOVERY: Final = "discovery in the configuration file"
_NO_DISAGGREGATION: Final = "none: disaggregated prefill is not supported"
# Flags of vllm-router, sglang-router, production-stack and LiteLLM.
FLAGS: Final = {
    "--api-base": "--replica URL",
    "--api-key": "upstream.token_file in the configuration file",
    "--backend-urls": "--replica URL, repeated for each",
    "--backends": "--replica URL, repeated for each",
    "--cb-failure-threshold": "health.eject_after in the configuration file",
    "--decode": _NO_DISAGGREGATION,
    "--dp-aware": "none: data-parallel ranks are detected",
    "--dynamic-config-yaml": "--config FILE; SIGHUP reads it again",
    "--health-check-endpoint": "health.path in the configuration file",
    "--health-check-interval-secs": "health.interval in the configuration file",
    "--k8s-label-selector": _DISCOVERY,
    "--k8s-namespace": _DISCOVERY,
    "--k8s-port": _DISCOVERY,
    "--log-dir": "access_log.path in the configuration file",
    "--max-concurrent-requests": "none: the queue sends what the engines can take",
    "--max-payload-size": "limits.body in the configuration file",
    "--prefill": _NO_DISAGGREGATION,
    "--pd-disaggregation": _NO_DISAGGREGATION,
    "--prometheus-host": "--admin HOST:PORT",
    "--prometheus-port": "--admin HOST:PORT",
    "--queue-size": "classes.*.depth in the configuration file",
    "--replicas": "--replica URL, repeated for each",
    "--request-timeout-secs": "timeouts.whole in the configuration file",
    "--retry-max-retries": "retry.attempts in the configuration file",
    "--routing-logic": "--policy NAME",
    "--selector": _DISCOVERY,
    "--service-discovery": _DISCOVERY,
    "--service-discovery-namespace": _DISCOVERY,
    "--service-discovery-port": _DISCOVERY,
    "--static-backends": "--replica URL, repeated for each",
    "--static-models": "replicas[].models in the configuration file; unset: they are detected",
    "--tls-cert-path": "--tls-cert FILE",
    "--tls-key-path": "--tls-key FILE",
}


def hint(message: str) -> str:
    """Return lines that name the replacements of the flags in an error message; "" if none."""
    words = (word.partition("=")[0] for word in message.split())
    found = dict.fromkeys(word for word in words if word in FLAGS)
    return "".join(f"\n  instead of {flag}: {FLAGS[flag]}" for flag in found)
