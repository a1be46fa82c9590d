"""Another replica finishes a stream whose replica failed in the middle of it.

    request      whether the stream may be continued, and the request for the rest; pure
    transcript   the text and the counts that the client has received so far; pure
    seam         makes the second stream look like the rest of the first; pure
    store        limits the bytes of text that are kept, per stream and in total
    stream       one stream over several replicas

Continuations are off by default. A stream is continued only if the result is certainly correct. In
all other cases the client sees that the stream is truncated.
"""
