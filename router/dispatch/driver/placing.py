"""Admits a request, and sends it to its first replica, the queue or a fallback, or answers it.

The proxy and the simulator call `admit`, then `place`, for each request that has arrived.
A request that no replica can serve goes to the next fallback of its model (`fallbacks.py`). If it
has none, the client gets an engine's answer that was kept, or else an error of the router.

Must never: choose a replica (the queue and the routing policy do), or use bytes or sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

from router.core.errors import Reason, RouterError
from router.core.urgency import BATCH
from router.dispatch.driver.arrival_estimate import sent_at_once
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.deadlines import NOT_SINCE
from router.dispatch.driver.fallbacks import CONDITIONS, next_fallback
from router.dispatch.driver.first_probes import HELPED
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.messages import MESSAGES
from router.dispatch.tenants import Tenants
from router.fleet.replica import Replica
from router.intake.flow import Flow, with_steps
from router.intake.keys import Key


def admit(
    driver: RequestDriver,
    tenants: Tenants,
    key: Key | None,
    flow: Flow,
    timeout_s: float,
    ttft_slo_s: float,
    tpot_slo_s: float,
) -> None:
    """Apply the rules of its key to a request that has arrived, and count it in the key's limits.

    `flow`: the flow of the request. `timeout_s`: the seconds that the client waits; infinity: no
    limit. `ttft_slo_s`, `tpot_slo_s`: the SLOs that the client states; 0: none. A refused
    request is not counted. Raises RouterError; the first reason that applies:

    1. DRAINING: the router is stopping.
    2. SUSPECT_REQUEST: two engines died while they had the same body.
    3. DEADLINE_PASSED: the deadline of the client has passed.
    4. The reasons of `Request.reserve`: a budget of the key is used up.
    5. `KEY_LIMITS`: a limit of the key is reached.
    """
    request, context = driver.request, driver.context
    view, route, urgency = request.view, request.route, request.urgency
    if key is not None:
        view.allowed = key.allowed_regions
    if context.fleet.nearest.is_used:
        view.region = request.preferred_region(key)
    if route.inference and (key is not None or ttft_slo_s > 0.0 or tpot_slo_s > 0.0):
        request.rules.slos[urgency.rank].state(view, key, ttft_slo_s, tpot_slo_s)
    arrived = view.arrived
    if context.closing:
        raise RouterError(Reason.DRAINING, MESSAGES[Reason.DRAINING], retry_after_s=1)
    if driver.is_suspect(arrived):
        raise RouterError(Reason.SUSPECT_REQUEST, MESSAGES[Reason.SUSPECT_REQUEST])
    if not route.inference:
        return
    if timeout_s <= 0.0:
        request.deadlines.client_deadline = arrived  # The access log contains this deadline.
        reason = Reason.DEADLINE_PASSED
        raise RouterError(reason, MESSAGES[reason], retry_after_s=1)
    if timeout_s != inf:
        request.deadlines.limited(arrived + timeout_s)
    prompt = most = 0
    answers = 1
    if key is not None:
        prompt, most, answers = request.reserve(key)
    request.tenant_share = share = tenants.enter(
        key,
        flow,
        prompt,
        most,
        answers,
        arrived,
        is_batch=urgency.rank == BATCH,
        takes_steps=context.takes_steps(),
        waits=context.queue is not None and not route.light,
    )
    if share is not None:
        request.concurrency = share.concurrency
        if share.steps:
            request.urgency = with_steps(urgency, share.steps)


def place(driver: RequestDriver) -> None:
    """Send the request to its first replica or to the queue, or answer it with an error.

    Called again if the request goes to a fallback. The first rule that applies decides:

    1. A request that refers to a stored response goes to the replica of that response.
    2. A request that uses no GPU goes to the least loaded replica of the nearest region.
    3. An inference request goes to the queue, if the queue is enabled.
    4. For any other request, the routing policy of its model chooses the replica.

    A request that no known replica can take may wait for the first probe of a new replica.
    """
    request, context = driver.request, driver.context
    route = request.route
    while True:
        if route.decodes:
            driver.limit_context()
        if request.named is None or not _skips_absent_model(driver):
            break
    queue, now = context.queue, context.scheduler.now()
    replica: Replica | None
    try:
        owner = request.owner()
        if owner is not None and (queue is None or not route.inference):
            replica = owner
        elif route.light:
            # The request never waits, even if all replicas are at their limits.
            fit = context.chooser.nearby(request.view, _fit(driver), now)
            replica = min(fit, key=_load)
        elif queue is not None and route.inference:
            replica = queue.enter(request, owner, now)
        else:
            replica = context.chooser.choose(request.view, request.candidates(()), now)
    except RouterError as err:
        retry, late = partial(place, driver), partial(request.answer, err)
        if err.reason not in HELPED or not context.first_probes.hold(request, retry, late):
            request.answer(err)
        return
    if context.first_probes:
        context.first_probes.forget(request)
    if replica is not None:  # `None`: the queue sends the request later.
        start(driver, replica, now)


def _fit(driver: RequestDriver) -> Sequence[Replica]:
    """Return the fit replicas, also those at their limits. Raises RouterError if there is
    none."""
    request, fleet = driver.request, driver.context.fleet
    view = request.view
    if request.judges_body():
        fleet.eligibility.check(view.model, view.allowed)
    # The call of `candidates` raises RouterError with the reason why no replica is fit.
    return fleet.serving.of(view.model, view.allowed) or request.candidates(())


def start(driver: RequestDriver, replica: Replica, now: float) -> None:
    """Send the first attempt of a request to a replica.

    The request is refused instead if its first token would come too late, and if its class is
    configured to refuse late requests.
    """
    request, context = driver.request, driver.context
    view, route = request.view, request.route
    if view.stream and route.inference and not route.light:
        account = request.flow.account
        chooser, estimates = context.chooser, context.estimates
        estimate = sent_at_once(view, account, replica, chooser, estimates, now)
        request.estimate = estimate
        if estimate is not None and request.rules.refuses_late[request.urgency.rank]:
            # The end of the TTFT SLO, or the client's own deadline if that is earlier.
            due = min(view.arrived + view.ttft_slo_s, request.deadlines.client_deadline)
            if estimate.is_late(due, now):
                estimate.void()
                if context.queue is not None:
                    context.queue.refused_late(request)
                request.answer(estimate.late_error(due))
                return
    driver.begin(replica, now)


def falls_back(driver: RequestDriver, reason: Reason) -> bool:
    """Send a request to its next fallback, if it has one. No attempt may be running.

    `reason`: why the request would end without a fallback. Returns False if it must end.
    """
    if driver.request.named is None or driver.state.live:
        return False
    return _falls_to(driver, _fallback_after(driver, reason), reason)


def _skips_absent_model(driver: RequestDriver) -> bool:
    """Set the next fallback of a request that is placed, if no replica of its model is up.

    Returns False if there is none. Then the request may wait for a replica.
    """
    request, fleet = driver.request, driver.context.fleet
    if request.named is None or fleet.models.awaits_probe:
        return False
    if fleet.serving.of(request.view.model, request.view.allowed):
        return False
    index = -1 if driver.state.live else _fallback_after(driver, Reason.NO_REPLICA)
    return _aims_at(driver, index, Reason.NO_REPLICA)


def falls_back_from(driver: RequestDriver, attempt: Attempt, reason: Reason) -> bool:
    """Send the request to a fallback instead of sending the attempt's error to the client.

    Returns False if the error must be sent.
    """
    state = driver.state
    if driver.request.named is None or state.holds_errors() or attempt not in state.live:
        return False
    index = _fallback_after(driver, reason)
    if index < 0:
        return False
    driver.request.discard(attempt)
    driver.end_attempt(attempt, reason)
    return _falls_to(driver, index, reason)


def _fallback_after(driver: RequestDriver, reason: Reason) -> int:
    request, context = driver.request, driver.context
    if context.closing or request.body is None:
        return -1
    return next_fallback(request, driver.state, context.fleet, reason)


def _falls_to(driver: RequestDriver, index: int, reason: Reason) -> bool:
    """Send the request to one of its fallbacks. Below 0: there is none; returns False."""
    if not _aims_at(driver, index, reason):
        return False
    place(driver)
    return True


def _aims_at(driver: RequestDriver, index: int, reason: Reason) -> bool:
    """Set one of the fallbacks as the request's model. Below 0: none; returns False.

    The request keeps its arrival and its order, its deadlines, its place in the retry budget, and
    the numbers of its lost attempts and hedges.
    """
    request, context = driver.request, driver.context
    named = request.named
    if index < 0 or named is None:
        return False
    now = context.scheduler.now()
    driver.clear_alarm()
    context.first_probes.forget(request)
    if request.deadlines.waits_since >= 0.0:
        request.deadlines.granted(now)
    queue = context.queue
    if queue is not None and driver.is_queued():
        queue.over(request, reason, None, -1, 0, now)
    if request.estimate is not None:
        request.estimate.void()
        request.estimate = None
    request.unreached_since = NOT_SINCE
    driver.state.fall_back()
    request.target = target = named.fallbacks[index]
    request.next_fallback = index + 1
    view = request.view
    view.model = context.fleet.models.routed_target(target)
    # The prompt's hashes and token IDs are those of the model before.
    view.blocks = ()
    view.chains = None
    context.metrics.fallback(CONDITIONS[reason])
    return True


def answer(driver: RequestDriver, err: RouterError) -> None:
    """End the request with an error of the router.

    The request goes to a fallback instead, or the client gets an engine's answer that was kept.
    """
    if not driver.is_over and not replaces_error(driver, err.reason, err.is_final):
        driver.cancel(err.reason)
        driver.request.fail(err)


def answer_failure(driver: RequestDriver, reason: Reason) -> None:
    """End the request because every attempt failed, none may follow, or a time limit passed."""
    retry_after = 2 if reason.status == 503 else None
    answer(driver, RouterError(reason, MESSAGES[reason], retry_after_s=retry_after))


def replaces_error(driver: RequestDriver, reason: Reason, is_final: bool = False) -> bool:
    """Send the request to a fallback, or else send the client an attempt's kept error answer.

    Returns False if neither is possible. Then the client gets the router's own error for
    `reason`. `is_final`: the request may not go to a fallback; see `RouterError`.
    """
    if not is_final and falls_back(driver, reason):
        return True
    if driver.state.kept_error is None or driver.state.over:
        return False
    driver.cancel(reason)
    driver.request.send_kept_error()
    return True


def _load(replica: Replica) -> tuple[int, int]:
    # Replicas are compared by `inflight`, too, because requests that use no GPU count only there.
    return replica.load, replica.inflight
