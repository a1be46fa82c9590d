"""Describes the conditions of a replay as text: the traffic, the fleet, the engine model. All
functions are pure.

The description includes every default value, so that all conditions of a result are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from router.core.text.table import number
from router.lab.emulator.core.timing import Timing
from router.lab.replay.job import Job
from router.lab.simulator.scenario import Fault, Group, Scenario
from router.lab.traces import Trace, TraceFacts

Fact = tuple[str, str]


def facts_of(
    trace: Trace, facts: TraceFacts, jobs: Sequence[Job], *, model_name: str
) -> list[Fact]:
    """Return the conditions as pairs of a label and a text.

    `model_name`: the engine model's name.
    """
    first = jobs[0]
    found = [
        ("traffic", _traffic(trace, facts, first.scenario, first.source.closed_loop)),
        ("fleet", _fleet(jobs)),
        *_engines(first.scenario, model_name),
        ("routers", _routers(jobs)),
        ("hedging", "; ".join(dict.fromkeys(_hedging(job.scenario) for job in jobs))),
        *_queues(jobs),
        *_left_out(first.scenario),
        (
            "SLO",
            f"first token within {first.slo.ttft_s:g} s, "
            f"then {first.slo.tpot_s * 1e3:g} ms per token",
        ),
    ]
    if first.scenario.faults:
        found.append(("faults", "; ".join(map(_fault, first.scenario.faults))))
    if facts.notes:
        notes = "; ".join(f"{what}: {count:,}" for what, count in sorted(facts.notes.items()))
        found.append(("notes", notes))
    found.append(("seed", str(first.scenario.seed)))
    return found


def _traffic(trace: Trace, facts: TraceFacts, scenario: Scenario, closed_loop: bool) -> str:
    text = f"{trace.name}: {facts.rows:,} requests"
    if facts.duration_s > 0.0:
        text += f" in {facts.duration_s:,.0f} s, {number(facts.rate)}/s"
    text += (
        f"; on average {facts.prompt_tokens:,.0f} prompt tokens and {facts.output_tokens:,.0f} "
        "output tokens"
    )
    if facts.reuse is None:
        text += "; no information about prefixes, so there are no cache hits"
    else:
        text += f"; {facts.reuse.share:.1%} of the prompt blocks occurred before"
    if closed_loop:
        text += "; sessions in a closed loop"
    if len(facts.models) > 1:
        text += f"; {len(facts.models)} models"
        if all(group.models is None for group in scenario.groups):
            text += ", served by every replica"
    return text


def _fleet(jobs: Sequence[Job]) -> str:
    groups = jobs[0].scenario.groups
    if len(groups) > 1:
        counts = " + ".join(f"{group.replicas:,}" for group in groups)
        return f"{jobs[0].scenario.replicas:,} replicas in {len(groups)} groups: {counts}"
    sizes = sorted({job.scenario.replicas for job in jobs})
    text = ", ".join(f"{size:,}" for size in sizes)
    if len(sizes) > 3:
        steps = {after - before for before, after in pairwise(sizes)}
        if len(steps) == 1:
            step = steps.pop()
            text = f"{sizes[0]:,} to {sizes[-1]:,}" + (f" in steps of {step}" if step > 1 else "")
    return text + (" replica" if sizes == [1] else " replicas")


def _engines(scenario: Scenario, model_name: str) -> list[Fact]:
    """Return two entries per group of replicas: its engine and its engine model.

    Labels are numbered if there are several groups.
    """
    found = []
    for place, group in enumerate(scenario.groups, 1):
        of = f" {place}" if len(scenario.groups) > 1 else ""
        found.append((f"engine{of}", _engine(group)))
        found.append((f"engine model{of}", f"{model_name}: {_timing(group.timing)}"))
    return found


def _left_out(scenario: Scenario) -> list[Fact]:
    """Return the configured features that are not simulated."""
    config = scenario.config
    left = [
        name
        for name, is_set in (
            ("prefix.exact", config.prefix.exact),
            ("prefix.isolate_tenants", config.prefix.isolate_tenants),
            ("continuation", config.continuation.enabled),
            ("batches", config.batches.enabled),
        )
        if is_set
    ]
    return [("not simulated", ", ".join(left))] if left else []


def _engine(group: Group) -> str:
    core = group.core
    return (
        f"at most {core.max_num_seqs:,} sequences and {core.max_num_batched_tokens:,} tokens per "
        f"step; {core.num_blocks * core.block_size:,} KV tokens in blocks of {core.block_size}"
        + ("" if group.models is None else f"; for {', '.join(group.models)}")
        + ("" if group.weight == 1.0 else f"; weight {group.weight:g}")
    )


def _timing(timing: Timing) -> str:
    """Format the timing's coefficients in ms, without coefficients that are 0."""
    prefill = (
        (timing.prefill_s, ""),
        (timing.prefill_token_s, " L"),
        (timing.prefill_square_s, " L²"),
    )
    decode = (
        (timing.decode_s, ""),
        (timing.decode_sequence_s, " B"),
        (timing.decode_context_s, " context"),
    )
    texts = []
    for name, terms in (("prefill", prefill), ("decode step", decode)):
        total = " + ".join(f"{value * 1e3:.3g}{of}" for value, of in terms if value)
        texts.append(f"{name} {total or '0'} ms")
    return ", ".join(texts)


def _routers(jobs: Sequence[Job]) -> str:
    scenario = jobs[0].scenario
    text = str(scenario.routers)
    if scenario.routers > 1:
        both = len({job.scenario.shared for job in jobs}) > 1
        text += ", with separate and with shared state" if both else ""
        text += ", with shared state" if scenario.shared and not both else ""
    polls, interval_s = scenario.polls, scenario.config.polling.interval_s
    if not interval_s:
        return f"{text}; engines are never polled"
    text += f"; engines polled every {interval_s:g} s with a delay of {polls.delay_s * 1e3:g} ms"
    return text + (f", {polls.loss:.1%} of polls lost" if polls.loss else "")


def _hedging(scenario: Scenario) -> str:
    rules = scenario.config.hedging
    if rules.policy == "off":
        return "off"
    return (
        f"{rules.policy}, for the classes {' and '.join(rules.classes)}, at most "
        f"{rules.budget:.0%} of the prefill tokens, below a utilisation of {rules.utilisation:g}"
    )


def _queues(jobs: Sequence[Job]) -> list[Fact]:
    asked = [job.scenario.config.queue for job in jobs]
    if not any(rules.enabled for rules in asked):
        return []
    orders = dict.fromkeys(rules.policy if rules.enabled else "none" for rules in asked)
    return [("queue", f"{', '.join(orders)}; gates, classes and limits as configured")]


def _fault(fault: Fault) -> str:
    what = f"{fault.kind} ×{fault.factor:g}" if fault.kind == "slow" else fault.kind
    return f"replica {fault.replica} {what} from {fault.at:g} to {fault.until:g} s"
