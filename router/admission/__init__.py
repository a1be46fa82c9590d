"""The admission queue: decides which waiting request a replica gets next.

Each model pool has one `Queue`. A pool is a set of replicas that are connected by the models they
serve (`pools.py`). The queue is pure: `now` is passed in, and the queue has no await, no callback
and no timer. So the proxy drives it on the event loop, and the simulator drives it on a virtual
clock.

Terms
-----
- A *ticket* is one request, as the queue sees it (`policies/queueing/ticket.py`).
- The *driver* is the code that calls the queue (`router/dispatch/queueing/queue_driver.py`).
- A *place* is a replica, as the queue sees it; also the capacity for one more request at a replica.
- A *lane* is a set of tickets that may go to the same replicas; usually all tickets of one model.
- A *class queue* holds the waiting tickets of one class in one lane (`ClassQueue`).
- A *line* is the ordered list of one class queue, which the order policy keeps
  (`policies/queueing`).
- A *gate* decides which classes may send one more request to a replica.

How the driver calls the queue
------------------------------
1. A request arrives: the driver calls `offer(ticket, now)`. There are three results:
   - The queue returns replicas to which the request may be sent. The routing policy chooses one of
     these replicas. The driver takes a lease on it, and calls `sent(ticket, replica, now)`.
   - The queue returns no replica. Then the ticket waits.
   - The queue raises RouterError (429 with Retry-After). Then the ticket has ended.

   If the queue is full, waiting tickets may be evicted for the new one. These tickets have ended
   and are in `evictions.evicted`, each with the error for its client. The driver reads this list
   after each `offer`, even if it raised, and answers these clients. The driver may send an early
   200 to a waiting client if `allows_early_status` returns true. `evictions.relieve` evicts a
   waiting request if there are too few connections; `evictions.set_aside` and `evict` evict
   requests if there is too little memory. While `is_passable` is true, the driver may first choose
   one of all fit replicas and then call `passes` for it. If the result is true, the request needs
   no ticket, and the driver calls `passed` at its end.
2. A replica's facts change: the driver calls `freed(replica, now)`. Facts change when a lease is
   taken or released, first content arrives, a poll returns or fails, or a replica becomes fit. The
   queue returns tickets, each with its `place`. The driver takes the leases of all of them before
   it makes another call. An API key may have a limit of requests that run at replicas at the same
   time. Tickets above this limit are blocked. The driver calls `woken` before `freed`, and at the
   end of each event loop turn in which a request of such a key ended. For a returned ticket, the
   driver chooses one of the returned replicas, calls `grant`, and takes the lease. The driver
   repeats this until `woken` returns None.
3. Time passes: the driver calls `tick(now)`, at `next_at` at the latest. The queue returns expired
   tickets with the errors for their clients, tickets to send (as `freed` does), running requests to
   preempt (only with the extra preemption), and replicas to poll at once.
4. A request that was sent ends: the driver calls `Queue.runs.settle(ticket, tokens, output, now)`
   with the true cost of the request, once, however it ended. The call comes after the lease is
   released and before `freed`. Before `settle`, the driver calls `Pools.shown` at the first content
   and `Pools.moved` when a retry goes to another replica. The driver calls `requeue` instead of
   `settle` if the request was preempted.
5. A client disconnects: the driver calls `leave(ticket)`, at any time. A waiting ticket is removed
   at once. The driver also calls `leave` if it does not send a request after `offer` returned
   replicas.
6. A replica leaves the fleet: the driver calls `Pools.regroup`. The configuration is reloaded: the
   driver calls `adopt(config)`.

Every ticket ends exactly once: it is refused, evicted, expired or settled, or its client leaves
while it waits. Only the queue changes the state of a ticket. So if a dispatch, an expiry and a
disconnect happen in one turn of the event loop, the first call takes effect and the later ones do
nothing.

What holds at all times
-----------------------
- At the end of a turn of the event loop, no ticket waits if a replica could take it and the limit
  of its API key allows it. So a new request may be sent to any replica whose gate is open to its
  class; the queue need not search other lanes first.
- The requests that wait at a replica exceed the target of its gate (a number of requests or of
  prompt tokens) by at most one request.
- No class waits for ever. Its oldest ticket becomes more urgent with age and is then marked as
  starved. Starved tickets get every second free place. If the routing policy keeps all replicas
  for requests in time, starved tickets that are lost (`BaseLine.is_lost`) get every tenth place.
- A lane whose replicas are all busy delays no other lane. A ticket that must not go to a replica
  does not block that replica for other tickets.
- Memory is bounded by the requests that wait and run. Flows (accounts and their users), lanes and
  the charges of flows are kept for reuse after their last request has ended, in a bounded number.

The modules
-----------
A queue is made of parts, each with its own fields. `queue_state` creates them, and has the numbers
that reports read; `queue` decides (arrivals, dispatches, periodic work, changes of the fleet,
reloads). `runs` counts the sent requests, `evictions` evicts waiting ones, `forecasts` predicts
waits, and `timers` expires and promotes. A part holds the parts that it calls, and never the queue.
`extra` is the interface of what is off by default: reservations and preemption are addons
(`router/addons`), which follow the tickets and may hold them back. `pools` decides which queue
serves which model. `waiting/` has the waiting tickets and chooses the
next one, `gates/` decides which classes a replica takes. The order within a class
is a policy of its own (`policies/queueing`). `limits` applies before any queue.

Urgency is a number: 0 critical, 1 high, 2 normal, 3 low, 4 batch, with fractions between these
numbers. The class is the nearest whole number. The level is the urgency less an amount for the age
of the request; age lowers the level to 1 (high) at most. Limits, extras and turns depend on
the *class*. The *aged class* is the whole number nearest to the level. A replica's gate is checked
with the aged class of a class queue's oldest ticket. The engine's `priority` number is derived from
the urgency and the arrival time (`fleet/engines/common/priority.py`), not from the level.

If the driver takes or releases a lease without calling `freed`, the cached answer of that replica's
gate is outdated until the next tick, which updates all gates.
"""
