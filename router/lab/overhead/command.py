"""`hedgerow bench overhead --upstream URL`: the latency that Hedgerow adds to an existing fleet.

Requests alternate between the fleet itself and Hedgerow in front of it, so that both see the same
engines. Reports the mean and median times with and without Hedgerow, the difference of the means,
and Hedgerow's CPU time. It also prints the spread of the means, because an engine's times often
vary by more than a router adds. In a checkout, the same command without `--upstream` compares
Hedgerow with other routers; that part is not installed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from router.lab.flags import count, positive
from router.lab.overhead import cpu
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import Hedgerow, PeerError, Running, Site, unverified

TOKENS = 32  # number of tokens in every answer


def add_arguments(parser: argparse.ArgumentParser, *, is_whole: bool = True) -> None:
    """Add the flags. `is_whole`: these are all flags of the command, so `--upstream` is needed."""
    add = parser.add_argument
    add(
        "--upstream",
        metavar="URL",
        required=is_whole,
        help="measure a fleet of your own, directly and through us",
    )
    add("--model", help="with --upstream: the model to ask for (default: its first)")
    add("--json", metavar="FILE", help="also write the results as JSON; - for standard output")
    add("--repeats", type=count, help="rounds over all routers (default 5)")
    add("--seconds", type=positive, help="length of one turn")
    add(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="router on one CPU, load and upstreams on another (default: where there are two)",
    )


class InFront(Hedgerow):
    """Hedgerow in front of the user's fleet."""

    url = ""

    def urls(self) -> list[str]:
        return [self.url]

    def _one_request(self) -> str:
        """Hedgerow is ready when it lists the fleet's models."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            link.request("GET", "/v1/models")
            answer = link.getresponse()
            models = json.loads(answer.read())
        except ValueError:
            return "no JSON from /v1/models"
        finally:
            link.close()
        return "" if answer.status == 200 and models.get("data") else f"{answer.status}, no model"


def first_model(host: str, port: int, tls: bool) -> str:
    """Return the name of the fleet's first model. Raises PeerError if the fleet lists no model."""
    link = (
        http.client.HTTPSConnection(host, port, timeout=10, context=unverified())
        if tls
        else http.client.HTTPConnection(host, port, timeout=10)
    )
    try:
        link.request("GET", "/v1/models")
        return str(json.loads(link.getresponse().read())["data"][0]["id"])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        raise PeerError(f"no model learned from /v1/models ({error!r}); give --model") from None
    finally:
        link.close()


def main(args: argparse.Namespace) -> int:
    """Return the exit code: 0 if measured, 1 if the fleet cannot be measured, 2 for a bad URL."""
    parts = urlsplit(args.upstream)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        print("--upstream must be http://host:port or https://host:port", file=sys.stderr)
        return 2
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    try:
        model = args.model or first_model(parts.hostname, port, tls)
        placement = Placement.choose(args.pin is not False)
        results = measure(args, placement, (parts.hostname, port, tls), model)
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    show(results, text(results), args)
    return 0


def show(results: dict[str, Any], words: str, args: argparse.Namespace) -> None:
    """Print the table, unless the JSON goes to standard output."""
    if args.json == "-":
        print(json.dumps(results, indent=1))
        return
    print(words)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


def measure(
    args: argparse.Namespace, placement: Placement, target: tuple[str, int, bool], model: str
) -> dict[str, Any]:
    repeats, seconds = args.repeats or 5, args.seconds or 4.0
    shapes: dict[str, dict[str, Any]] = {
        "JSON, c=1": {"connections": 1},
        "JSON, c=4": {"connections": 4},
        "streams, c=1": {"connections": 1, "tokens": TOKENS, "pace": 0},
        "streams, c=16": {"connections": 16, "tokens": TOKENS, "pace": 0},
    }
    found: dict[str, Any] = {}
    site_folder = tempfile.TemporaryDirectory(prefix="hedgerow-bench-")
    with site_folder as folder, Orderly("router.lab.overhead.load", cpus=placement.others) as load:
        peer = InFront(Site(Path(folder), (), placement))
        peer.url = args.upstream
        with Running(peer):
            ends = {
                "direct": {"host": target[0], "port": target[1], "tls": target[2], "root": 0},
                "hedgerow": {"host": "127.0.0.1", "port": peer.port, "root": peer.pid},
            }
            for shape, order in shapes.items():
                print(f"measuring {shape}", file=sys.stderr, flush=True)
                common = {
                    "kind": "loop",
                    "foreign": True,
                    "repeats": 1,
                    "seconds": seconds,
                    "model": model,
                    "limit": TOKENS,
                    "lead": 0.5,
                    "answer_mark": '"choices"',
                    "token_mark": '"choices":[{',
                    **order,
                }
                runs: dict[str, list[dict[str, Any]]] = {"direct": [], "hedgerow": []}
                errors: list[str] = []
                for _ in range(repeats):
                    for name, end in ends.items():
                        answer = load.ask({**common, **end})
                        runs[name].append(answer["windows"][0])
                        errors += [f"{name}: {n} × {e}" for e, n in answer["errors"].items()]
                found[shape] = {**summary(runs), "errors": errors}
            size = cpu.memory(cpu.tree(peer.pid))
    return {"upstream": args.upstream, "model": model, "shapes": found, "rss_mb": size.rss / 1e6}


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the times of whole answers and first tokens in ms, with and without Hedgerow, and
    Hedgerow's CPU time in µs.
    """
    result: dict[str, Any] = {}
    for name, windows in runs.items():
        for kind in ("latency", "first"):
            seen = [w[kind] for w in windows if w[kind]]
            if seen:
                result[f"{name}_{kind}_mean_ms"] = median(s["mean"] for s in seen) * 1e3
                result[f"{name}_{kind}_p50_ms"] = median(s["p50"] for s in seen) * 1e3
                means = [s["mean"] for s in seen]
                result[f"{name}_{kind}_spread_ms"] = (max(means) - min(means)) * 1e3
    for kind in ("latency", "first"):
        pairs = [
            (own[kind]["mean"] - base[kind]["mean"]) * 1e3
            for own, base in zip(runs["hedgerow"], runs["direct"], strict=True)
            if own[kind] and base[kind]
        ]
        if pairs:
            result[f"added_{kind}_ms"] = median(pairs)
    own_windows = runs["hedgerow"]
    spent = sum(w["cpu_s"] for w in own_windows) * 1e6
    for unit in ("requests", "tokens"):
        if count := sum(w[unit] for w in own_windows):
            result[f"cpu_us_per_{unit[:-1]}"] = spent / count
    return result


def text(results: dict[str, Any]) -> str:
    lines = [f"{results['upstream']}, model {results['model']}, {TOKENS} tokens an answer", ""]
    head = f"{'':16}{'direct':>12}{'hedgerow':>12}{'added':>10}{'spread':>10}{'CPU µs':>10}"
    lines.append(head + "   (ms, means; spread of direct's repeats)")
    for shape, s in results["shapes"].items():
        for kind, label in (("latency", shape), ("first", "  first token")):
            if f"added_{kind}_ms" not in s:
                continue
            spent = s.get("cpu_us_per_request") if kind == "latency" else s.get("cpu_us_per_token")
            lines.append(
                f"{label:16}{s[f'direct_{kind}_mean_ms']:12.3f}{s[f'hedgerow_{kind}_mean_ms']:12.3f}"
                f"{s[f'added_{kind}_ms']:10.3f}{s[f'direct_{kind}_spread_ms']:10.3f}"
                f"{spent if spent is not None else float('nan'):10.1f}"
            )
        lines += [f"! {shape}: {error}" for error in s["errors"]]
    lines += [
        "",
        f"CPU µs per request, and per token beside `first token`; RSS {results['rss_mb']:.0f} MB",
    ]
    return "\n".join(lines)
