"""The compared routers (peers). One small class per router finds, configures and starts it.

Every peer is configured as its own documentation recommends for two OpenAI replicas, with one
worker and with its access log on if it has one; `settings` lists the changed settings. A peer that
is not installed raises PeerError with the reason.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from typing import ClassVar

from bench.overhead import packaged
from bench.overhead.goals import WORKERS
from router.lab.overhead.routers import Hedgerow, Peer, PeerError


class SystemPeer(Peer):
    """A program of the system, or of a Debian package that `--install-peers` has unpacked."""

    name_of_program: ClassVar[str]

    def program(self) -> str:
        # /usr/sbin may be missing in the PATH of a user who is not root.
        places = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
        found = shutil.which(self.name_of_program, path=places)
        if found is not None:
            return found
        unpacked = packaged.unpacked(self.name_of_program)
        if unpacked is None:
            raise PeerError(
                f"`{self.name_of_program}` is not installed (Debian: apt install "
                f"{self.name_of_program}, or `hedgerow bench overhead --install-peers`)"
            )
        return str(unpacked / "usr/sbin" / self.name_of_program)

    def env(self) -> dict[str, str]:
        return packaged.libraries(self.name_of_program)

    def said(self, option: str) -> str:
        """Run the program with `option` alone and return its output (stdout and stderr)."""
        environment = {**os.environ, **self.env()}
        done = subprocess.run(
            [self.program(), option], capture_output=True, text=True, env=environment
        )
        return done.stdout + done.stderr


class Direct(Peer):
    """No router: requests go directly to a raw replica. This is the baseline for all routers."""

    name = "direct"
    settings = "the load straight at the first upstream"

    def version(self) -> str:
        return "-"

    def start(self) -> None:
        self.port = self.site.upstreams[0]


class HedgerowTls(Hedgerow):
    """Hedgerow with TLS; only used to measure the memory of an idle TLS stream."""

    name = "hedgerow-tls"
    settings = "as shipped, listening with TLS"
    tls = True

    def config(self) -> dict[str, object]:
        cert, key = packaged.certificate(self.site.folder)
        return {**super().config(), "tls": {"cert": str(cert), "key": str(key)}}


class HedgerowWorkers(Hedgerow):
    name = WORKERS
    settings = "as shipped, with two workers"

    def config(self) -> dict[str, object]:
        return {**super().config(), "workers": 2}


class Haproxy(SystemPeer):
    name = "haproxy"
    name_of_program = "haproxy"
    # Log to a file, as the other routers do. A Unix syslog socket holds ten log lines (Linux's
    # net.unix.max_dgram_qlen), and HAProxy drops the rest, which would save CPU time.
    settings = "option http-no-delay, option httplog to a file (stdout), nbthread 1, leastconn"
    logs = True

    def more_global(self) -> str:
        """Return further lines for the section `global` of HAProxy's configuration."""
        return ""

    def more_backend(self) -> str:
        """Return further lines for the section `backend` of HAProxy's configuration."""
        return ""

    def version(self) -> str:
        return self.said("-v").split()[2]

    def command(self) -> list[str]:
        servers = "\n".join(
            f"  server r{i} 127.0.0.1:{port}" for i, port in enumerate(self.site.upstreams)
        )
        log_target = "  log stdout format raw local0\n" if self.logs else ""
        log_use = "  log global\n  option httplog\n" if self.logs else ""
        config = self.site.folder / "haproxy.cfg"
        config.write_text(
            f"global\n  maxconn 8000\n  nbthread 1\n{log_target}{self.more_global()}"
            f"defaults\n  mode http\n{log_use}  option http-no-delay\n  http-reuse always\n"
            "  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n"
            f"frontend f\n  bind 127.0.0.1:{self.port}\n  default_backend b\n"
            f"backend b\n  balance leastconn\n{self.more_backend()}{servers}\n"
        )
        return [self.program(), "-db", "-f", str(config)]


class HaproxyQuiet(Haproxy):
    """HAProxy without an access log, which few operators run; it shows a lower bound."""

    name = "haproxy-nolog"
    settings = "option http-no-delay, no log, nbthread 1, leastconn"
    logs = False


class Nginx(SystemPeer):
    name = "nginx"
    name_of_program = "nginx"
    settings = (
        "proxy_buffering off, access_log to a file, worker_processes 1, least_conn, keepalive 256, "
        "client_body_buffer_size 256k"
    )

    def version(self) -> str:
        return self.said("-v").strip().rpartition("/")[2]

    def command(self) -> list[str]:
        folder = self.site.folder
        servers = " ".join(f"server 127.0.0.1:{port};" for port in self.site.upstreams)
        user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
        temps = "\n".join(
            f"  {kind}_temp_path {folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = folder / "nginx.conf"
        config.write_text(
            f"{user}\nworker_processes 1;\ndaemon off;\npid {folder}/nginx.pid;\n"
            f"error_log {folder}/error.log;\nworker_rlimit_nofile 20000;\n"
            "events { worker_connections 16384; }\nhttp {\n"
            f"{temps}\n  access_log {folder}/access.log;\n  keepalive_requests 100000000;\n"
            "  client_max_body_size 64m;\n  client_body_buffer_size 256k;\n"
            f"  upstream fleet {{ least_conn; {servers} keepalive 256;\n"
            "    keepalive_requests 100000000; }\n"
            f"  server {{ listen 127.0.0.1:{self.port} backlog=4096; location / {{\n"
            "    proxy_pass http://fleet; proxy_http_version 1.1;\n"
            '    proxy_set_header Connection ""; proxy_buffering off;\n'
            "    proxy_read_timeout 600s; } }\n}\n"
        )
        return [self.program(), "-c", str(config), "-e", str(folder / "error.log")]
