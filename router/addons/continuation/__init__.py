"""Another replica finishes a stream whose replica failed in the middle of it.

    request      decides whether a stream may be continued, builds the request for the rest; pure
    transcript   records the text and the token counts that the client has received, and makes the
                 second stream look like the rest of the first; pure
    store        limits the bytes of text that are kept, per stream and in total; counts outcomes
    stream       relays one stream, which may come from several replicas
    addon        opens the streams of one router

The dispatcher calls the addon through `dispatch/resumption.py`, and imports none of these files.

Continuations are off by default. A stream is continued only if the result is certainly correct. In
all other cases the client sees that the stream is truncated.
"""

from router.addons.continuation.addon import Continuations as resumption

__all__ = ["resumption"]
