"""Discovery: sources that name replicas while the router runs.

Each source is a `Source` (`source.py`): a watched file, or a DNS name. The watcher runs one task
for each source, and reports valid answers. The roster keeps the last valid answer of each source
and decides which replicas they add to the fleet. `app/discovered.py` applies the result to the
fleet.

- Pure: `roster.py` (members, precedence, limits, standby), `source.py` (the interface, TTLs and
  back-off), `records.py` (DNS records, and the replicas that they name).
- I/O: `file_source.py`, `dns_source.py` and `dns_client.py`, `watcher.py`.

An answer that fails never changes the fleet. A valid answer may name no replica.
"""
