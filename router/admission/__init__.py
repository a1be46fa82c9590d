"""The admission queue: who goes next, while every replica has enough to do.

One `Queue` stands before one model pool, the replicas that are connected by what they serve
(`pools.py`). It is pure: `now` is passed in, nothing is awaited, called back or timed, so that the
proxy drives it on the event loop and the simulator on a virtual clock.

How it is driven
----------------
1. A request comes: `offer(ticket, now)`. It gives replicas: the driver's routing policy chooses one
   of them, takes its lease and says `sent(ticket, replica, now)`. Or it gives none, and the ticket
   waits. Or it raises RouterError (429 with Retry-After), and the ticket has ended. Where the queue
   is full, others may give way to it: they have ended and stand in `evicted`, each with what to
   tell its client. The driver takes them after the call, also after one that raised, and answers
   them. An early 200 may be sent to a client that waits if `commits` says so. `relieve` lets a
   request give way where connections or memory are short.
   Where `is_passable`, the driver may choose first, among all fit replicas, and ask whether its
   choice `passes`: then there is no ticket at all, and at the end it says `passed`.
2. A replica's facts change (a lease is released or taken, the first content came, a poll came back
   or failed, it is new or fit again): `freed(replica, now)`. It gives tickets, each with its
   `place`. The driver takes the leases of all of them, and only then says anything else to the
   queue.
   A key with a limit may have so many requests at replicas; its other tickets are blocked. Before
   `freed`, and at the end of each turn that ended a request of such a key: the driver asks for a
   ticket that is `woken`, chooses one of the replicas it may go to, says `grant` and takes the
   lease, and asks again until there is none.
3. Time goes on: `tick(now)`, at `next_at` at the latest. It gives tickets that have expired, with
   what to tell their clients, tickets to send (as `freed` does), victims of preemption, and
   replicas worth a poll at once.
4. What was sent ends once: `settle(ticket, tokens, output, now)` with its true cost, however it
   ended, after its lease is released and before `freed`. `shown(ticket)` at its first content,
   `moved` when a retry takes it elsewhere, `requeue` instead of `settle` if it was preempted.
5. Its client goes away: `leave(ticket)`, at any time. If it waited it is gone in that call. One
   that was offered replicas and is not sent after all leaves, too.
6. A replica leaves the fleet: `gone(replica)`. A reload: `adopt(config)`.

Every ticket comes to exactly one end: refused, evicted, expired, left while it waited, or settled.
The state of a ticket moves in the queue alone, so that a dispatch, an expiry and a departure in one
turn of the event loop cannot both win; what comes second is told so and does nothing.

What holds at all times
-----------------------
- At the end of a turn no ticket waits that a replica could take and that its key's limit allows.
  So a newcomer may use a gate that is open to its class, and lanes without tickets of that class
  are not searched.
- What waits at a replica never exceeds its gate's target by more than the one that reached it.
- No class waits for ever: its eldest ages, starves, and then has every other place.
- A lane that is blocked blocks nobody but itself; a ticket that must not go to a replica blocks it
  for nobody.
- Memory is bounded by what waits and runs; flows, lanes and debts of those that are gone are kept
  for a bounded number.

The parts, from what decides least to what decides most
-------------------------------------------------------
    limits          what a tenant may have at all, before any queue
    concurrency     how many requests a key has at replicas, and may have
    pool            what the queue sees of a replica and of the fleet
    rules           the configuration as plain numbers
    gate            may a replica take one more request, and of which class? (backpressure)
    gate_cache      the gates' last answers, kept until a replica's facts change
    aimd_limit      the concurrency limit of a replica that reports no metrics
    class_queue     the waiting tickets of one class and lane, in the order policy's order
    stride          which class has the next turn (weights, aging)
    reservations    may this class have more of the pool?
    affinity        which of the first few tickets has its prefix cached on this replica?
    choice          all of these: which ticket gets this place
    preemption      which running request gives way to a more urgent one
    holders         how much of the queue each flow holds, and which ticket leaves a full queue
    wait_lists      all class queues of a queue, deadlines, and how many tickets may wait
    timers          what time alone changes: aging, expiry, early polls
    service_rate    how fast the queue is served, for Retry-After
    output_lengths  predicts the length of an answer
    counts          the queue's counters
    queue           the calls above
    pools           which queue serves which model

The order within a class is a policy of its own (`policies/queueing`).

What a number means: 0 critical, 1 high, 2 normal, 3 low, 4 batch, fractions between; a class is the
nearest whole number. Age makes a level smaller, at most to high. The *class* decides limits,
reservations and turns. The *aged* class of a class queue's oldest ticket decides its gate. The aged
level of a ticket becomes the number that its engine is sent.

What it costs to be driven wrongly: a lease that was taken or released without `freed` leaves a gate
as it was until the next tick, which looks at all of them.
"""
