"""The command line: a contract of flags, exit statuses and messages."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.cli import full_parser, main
from router.config.keys import KeyLine, hash_of, line_of
from router.config.load import load, parse
from router.config.peer_flags import FLAGS
from router.core.build import is_compiled
from tests.addons.needed import needs
from tests.harness.ports import free_port
from tests.places import CERT, KEY

LIMIT_S = 30.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "hedgerow.yaml"


def status_of(argv: list[str]) -> object:
    """The exit status, also if argparse exits by SystemExit."""
    try:
        return main(argv)
    except SystemExit as leaving:
        return leaving.code


# check


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("replicas: [http://a, http://b]", "ok: 2 replicas, policy kv_aware\n"),
        ("replicas: [http://a]\nrouting: {policy: p2c}", "ok: 1 replica, policy p2c\n"),
        ("emulate: {count: 3}", "ok: 3 emulated replicas, policy kv_aware\n"),
    ],
)
def test_check_says_ok(
    file: Path, text: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr() == (line, "")


def test_check_names_every_problem_and_exits_2(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("replicas: [gpu-1]\nlimits: {head: 1}\n")
    assert main(["check", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"hedgerow: {file} has 2 problems:",
        "  replicas[0].url: 'gpu-1' has no scheme; write http://gpu-1",
        "  limits.head: must be at least limits.request_line (8KiB), not 1B",
    ]


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "requests with a wrong key"),
        pytest.param("batches: {enabled: true}", "share their files", marks=needs("batches")),
    ],
)
def test_check_says_what_clients_without_a_key_may_do(
    file: Path, capsys: pytest.CaptureFixture[str], more: str, words: str, required: bool
) -> None:
    keys = file.with_name("keys.jsonl")
    keys.write_text("# no keys yet")
    keys_text = f"keys: {{file: {keys}, required: {str(required).lower()}}}"
    file.write_text(f"replicas: [http://a]\n{more}\n{keys_text}")
    assert main(["check", str(file)]) == 0
    assert (words in capsys.readouterr().out) == (not required)


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "examples:" in capsys.readouterr().err


def test_check_of_a_missing_file_exits_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file)]) == 2
    assert f"  {file}: cannot be read: No such file or directory\n" in capsys.readouterr().err


def test_check_imports_nothing_of_the_data_plane(file: Path) -> None:
    """`check` runs in deployment pipelines and should be fast."""
    file.write_text("replicas: [http://a]")
    script = (
        "import sys; from router.cli import main; status = main(sys.argv[1:]); "
        "heavy = {'asyncio', 'uvloop', 'aiohttp', 'httptools', 'prometheus_client', 'router.app'}; "
        "print(sorted(heavy & set(sys.modules))); sys.exit(status)"
    )
    done = run(sys.executable, "-c", script, "check", str(file))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "[]"


# serve: errors


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            [],
            "replicas: at least one is needed (--config FILE, --replica URL, --emulate N, or a ",
        ),
        (["--replica", "gpu-1:8000"], "replicas[0].url: 'gpu-1:8000' has no scheme"),
        (
            ["--replica", "http://a", "--replica", "http://A/"],
            "replicas[1].url: is the same engine",
        ),
        (["--emulate", "1", "--listen", "gpu-1"], "listen: 'gpu-1' has no port"),
        (
            ["--emulate", "1", "--admin", "9901"],
            "admin.listen: a port alone would listen on every interface",
        ),
        (["--emulate", "1", "--admin", "x:y"], "admin.listen: 'y' is not a port"),
        (["--emulate", "1", "--admin", "0.0.0.0:9901"], "admin.token: is missing"),
        (["--emulate", "1", "--policy", "best"], "routing.policy: unknown policy 'best'"),
        (
            ["--emulate", "1", "--replica", "http://a"],
            "emulate.count: cannot be used with replicas",
        ),
        (["--emulate", "-1"], "emulate.count: must be at least 0"),
        (["--config", "/none.yaml"], "/none.yaml: cannot be read"),
    ],
)
def test_a_mistake_exits_2_with_its_path(
    flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *flags]) == 2
    assert f"\n  {problem}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["serv"],
        ["serve", "--emulate", "many"],
        ["serve", "--nonsense"],
        ["serve", "--emulate", "1", "--listen", "127.0.0.1:0", "--port", "1"],
        ["bench"],
        ["bench", "nonsense"],
    ],
)
def test_a_wrong_flag_exits_2_with_usage(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(argv) == 2
    assert capsys.readouterr().err.startswith("usage: hedgerow")


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (["--backend-urls", "http://a"], ["--backend-urls: --replica URL, repeated for each"]),
        (
            ["--emulate", "1", "--api-key=x", "--selector", "app=x"],
            ["--api-key: upstream.token_file in", "--selector: discovery in"],
        ),
    ],
)
def test_flags_of_other_routers_are_answered_with_their_replacements(
    flags: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["serve", *flags]) == 2
    found = capsys.readouterr().err.splitlines()[-len(lines) :]
    for line, expected in zip(found, lines, strict=True):
        assert line.startswith(f"  instead of {expected}")


def test_the_flags_of_other_routers_are_not_ours() -> None:
    serve = full_parser().format_help()
    assert not [flag for flag in FLAGS if flag in serve]


# the configuration file


def test_the_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEDGEROW_CONFIG", raising=False)
    assert main(["check"]) == 2
    assert "there is no hedgerow.yaml in the current directory" in capsys.readouterr().err
    (tmp_path / "hedgerow.yaml").write_text("replicas: [http://in-folder]")
    (tmp_path / "other.yaml").write_text("replicas: [http://named, http://named:1]")
    assert main(["check"]) == 0
    assert capsys.readouterr().out.startswith("ok: 1 replica,")

    def printed(*flags: str) -> Any:
        assert main(["serve", "--print-config", *flags]) == 0
        return [each["url"] for each in yaml.safe_load(capsys.readouterr().out)["replicas"]]

    assert printed() == ["http://in-folder"]
    assert printed("--replica", "http://flag") == ["http://flag"]
    assert printed("--emulate", "1") == []  # Flags that name replicas: the folder is not searched.
    monkeypatch.setenv("HEDGEROW_CONFIG", "other.yaml")
    assert printed() == ["http://named", "http://named:1"]
    assert printed("--config", "hedgerow.yaml") == ["http://in-folder"]
    assert main(["check"]) == 0
    assert capsys.readouterr().out.startswith("ok: 2 replicas,")


def test_the_configuration_is_printed_without_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["replicas"] == []


@pytest.mark.parametrize("folder", ["gateway", "discovery", "sidecar"])
def test_the_examples_for_kubernetes_are_checked_on_any_machine(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(__file__).parents[2] / "deploy/kubernetes" / folder / "hedgerow.yaml"
    assert main(["check", "--skip-files", str(file)]) == 0
    assert capsys.readouterr().out.startswith("ok: ")


# help and version


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--help"], ["serve", "check", "emulate", "bench", "examples:"]),
        (
            ["serve", "--help"],
            ["--config", "--listen", "--admin", "--replica", "--policy", "--emulate", "SIGHUP"],
        ),
        (["check", "--help"], ["FILE"]),
        (["emulate", "--help"], ["--fault", "/emulator/faults", "x-emulate-fault: "]),
        (["bench", "--help"], ["overhead"]),
        (["bench", "overhead", "--help"], ["--upstream", "--json"]),
    ],
)
def test_help(argv: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(argv) == 0
    out = capsys.readouterr().out
    assert [word for word in words if word not in out] == []


def test_python_m_router_is_the_same_program() -> None:
    build = "compiled" if is_compiled() else "pure Python"
    assert run(sys.executable, "-m", "router", "--version").stdout == (
        f"hedgerow {version('hedgerow')} ({build})\n"
    )
    done = run(sys.executable, "-m", "router", "check", "/none.yaml")
    assert done.returncode == 2


# serve: running


class Served:
    """`hedgerow serve` in its own process, with no waiting time when draining."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.port, self.admin = free_port(), free_port()
        self.write("random")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "router", "serve", "--config", str(file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, policy: str) -> None:
        self.file.write_text(
            f"listen: 127.0.0.1:{self.port}\nadmin: 127.0.0.1:{self.admin}\n"
            f"replicas: [http://127.0.0.1:9]\nrouting: {{policy: {policy}}}\n"
            "drain: {lame_duck: 0, grace: 1}\n"
        )

    def ask(self, method: str, path: str) -> int:
        """The admin port's status; 0 if nothing listens there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=LIMIT_S)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        except ConnectionError:
            return 0
        finally:
            connection.close()

    def events_until(self, message: str) -> list[dict[str, Any]]:
        """Read log events up to the first whose message begins with `message`, or to the end."""
        assert self.process.stderr is not None
        found: list[dict[str, Any]] = []
        give_up = threading.Timer(LIMIT_S, self.process.kill)
        give_up.start()
        try:
            for line in self.process.stderr:
                found.append(json.loads(line))
                if found[-1]["message"].startswith(message):
                    break
        finally:
            give_up.cancel()
        return found


@pytest.fixture
def served(file: Path) -> Iterator[Served]:
    one = Served(file)
    try:
        until(lambda: one.ask("GET", "/livez") == 200 or one.process.poll() is not None)
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def test_it_serves_until_sigterm_and_is_not_ready_while_no_replica_is_up(served: Served) -> None:
    # The admin port answers before the router listens for clients, so the test waits for the event.
    first, *_, listening = served.events_until("listening")
    assert (first["message"], first["version"]) == ("starting", version("hedgerow"))
    assert first["build"] == ("compiled" if is_compiled() else "pure Python")
    assert listening["message"] == "listening, and no replica is up"
    assert listening["down"].startswith("127.0.0.1:9: ")
    assert "refused" in listening["down"].lower()
    assert listening["listen"] == f"127.0.0.1:{served.port}"
    served.process.send_signal(signal.SIGTERM)
    assert not [event for event in served.events_until("ready") if event["message"] == "ready"]
    assert served.process.wait(LIMIT_S) == 0


def test_it_is_ready_when_the_first_replica_comes_up(file: Path) -> None:
    port = free_port()
    file.write_text(
        f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nreplicas: [http://127.0.0.1:{port}]\n"
        "health: {interval: 0.1}\ndrain: {lame_duck: 60, grace: 60}\n"
    )
    command = [sys.executable, "-m", "router", "serve", "--config", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said: list[str] = []
        give_up = threading.Timer(LIMIT_S, process.kill)
        give_up.start()
        try:
            for line in process.stderr:
                said.append(json.loads(line)["message"])
                if said[-1].startswith("listening"):
                    engine = ThreadingHTTPServer(("127.0.0.1", port), SimpleHTTPRequestHandler)
                    threading.Thread(target=engine.serve_forever).start()
                if said[-1] == "ready":
                    break
            engine.shutdown()
            engine.server_close()
            # No client is connected, so Ctrl-C waits neither for the lame duck phase nor the grace
            # period.
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0
        finally:
            give_up.cancel()
            process.kill()
    assert said.index("listening, and no replica is up") < said.index("replica up")
    assert said[-1] == "ready"


@pytest.mark.parametrize("flag", ["--listen", "--admin"])
def test_a_port_in_use_is_one_clear_line_and_status_1(flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        addresses = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0"}
        addresses[flag] = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = [word for pair in addresses.items() for word in pair]
        done = run(
            *(sys.executable, "-m", "router", "serve", "--replica", "http://127.0.0.1:9"), *flags
        )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("hedgerow: cannot start: ")
    assert "in use" in last.lower()
    assert f"the flag {flag}" in last
    assert "Traceback" not in done.stderr


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env=env)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


# flags of serve, and what it prints without serving


def printed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["serve", "--print-config", *argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return yaml.safe_load(out)


def test_flags_replace_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys.jsonl"
    keys.write_text(line_of(KeyLine(name="acme", hash=hash_of(b"k"))))
    urls = ["http://a:1", "http://b:2"]
    flags = ["--tls-cert", CERT, "--tls-key", KEY, "--keys", str(keys), "--port", "81"]
    found = printed([*flags, "--worker-urls", *urls, "--host", "::1"], capsys)
    assert [replica["url"] for replica in found["replicas"]] == urls
    assert found["tls"] == {"cert": CERT, "key": KEY}
    assert (found["keys"]["file"], found["listen"]) == (str(keys), "[::1]:81")
    assert printed(["--replica", urls[0], "--worker-urls", urls[1], "--port", "81"], capsys)[
        "listen"
    ] == ("0.0.0.0:81")


def test_half_of_a_certificate_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--replica", "http://a:1", "--tls-cert", CERT]) == 2
    assert "tls.key: is missing" in capsys.readouterr().err


def test_the_printed_configuration_is_the_one_in_force(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        "replicas: [{url: http://a:1, weight: 2.5}]\n"
        "timeouts: {connect: 0.0123456, head: 1.5}\n"
        "limits: {body: 1000001}\n"
        "usage: {prices: {m: {input: 0.1}}}\n"
        "routing: {models: {m: {policy: p2c}}}\n"
        "classes: {high: {ttft_slo: 333ms}}\n"
    )
    text = yaml.safe_dump(printed(["--config", str(file)], capsys))
    assert parse(text) == load(file)


def test_secrets_are_not_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        "replicas: [{url: http://a:1, credential: {token: my-secret-4}}]\n"
        "admin: {token: my-secret-1}\n"
        "upstream: {token: my-secret-2}\n"
        "access_log: {salt: my-secret-3}\n"
        "pools: {p: {headers: {x-secret: my-secret-5}, credential: {token: my-secret-6}}}\n"
    )
    found = printed(["--config", str(file)], capsys)
    assert "my-secret" not in str(found)
    sections = (found["admin"]["token"], found["upstream"]["token"], found["access_log"]["salt"])
    assert sections == ("(hidden)",) * 3


def test_every_setting_that_is_a_secret_by_name_is_marked() -> None:
    from router.config.annotations import hints, is_secret
    from router.config.model.setting_types import Frozen

    secrets = {"token", "salt", "password", "secret"}
    for cls in Frozen.__subclasses__():
        for name, kind in hints(cls).items():
            assert name not in secrets or is_secret(kind), (cls, name)


# completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_have_commands_and_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("serve", "replay", "worker-urls", "tls-cert", "calibrate"):
        assert word in script, word


def test_completion_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install shtab" in capsys.readouterr().err


def test_a_reader_that_stops_gets_no_traceback() -> None:
    """As in `hedgerow config reference | head`."""
    words = (sys.executable, "-m", "router", "config", "reference")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LIMIT_S) == 1


def test_the_help_states_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["--help"]) == 0
    text = capsys.readouterr().out.split("exit status:")[1]
    assert [line.split()[0] for line in text.strip().splitlines()] == ["0", "1", "2", "3", "130"]
