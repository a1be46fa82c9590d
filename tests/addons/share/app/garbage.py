"""A program that fills a server of Redis with what no router sends.

Its arguments are the URL, the channel, and the pause in seconds between 25 messages and the next.
"""

import sys
import time
from random import Random

import msgspec
import redis

from router.share.messages import MOST_BYTES, MOST_LOAD, VERSION, Message, Placement, Row, encoded

TURN = 25  # messages before each pause


def kinds(rng: Random) -> list[bytes]:
    """One message of each kind that a router has to ignore."""
    good = Message(VERSION, "x", 1, (Row("r0", 5, 5, 5),), True, (Placement("r0", (1, 2), 0),))
    large = Row("r0", MOST_LOAD + 1, 0, 0)
    return [
        b"",
        rng.randbytes(rng.randrange(2000)),
        rng.randbytes(MOST_BYTES + 1),
        encoded(good)[: rng.randrange(1, 12)],
        encoded(msgspec.structs.replace(good, version=VERSION - 1)),
        encoded(msgspec.structs.replace(good, rows=(large,))),
        encoded(msgspec.structs.replace(good, router="x" * 1000)),
        msgspec.msgpack.encode([VERSION, "x", 1, [["r0", None, {}, 1.5]], 7, [[]]]),
        b"\x91" * 10_000,
    ]


def main(url: str, channel: str, pause_s: float) -> None:
    client = redis.Redis.from_url(url)
    rng = Random(1)
    fleet = channel.partition(":")[0]
    client.set(channel, "text")
    client.lpush(f"{fleet}:list", "a")
    client.hset(f"{fleet}:hash", "a", "b")
    messages = kinds(rng)
    large = [data for data in messages if len(data) > MOST_BYTES]
    small = [data for data in messages if len(data) <= MOST_BYTES]
    while True:
        with client.pipeline(transaction=False) as turn:
            for _ in range(TURN):
                turn.publish(channel, rng.choice(small))
            if rng.random() < 0.1:
                turn.publish(channel, large[0])
            turn.execute()
        time.sleep(pause_s)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
