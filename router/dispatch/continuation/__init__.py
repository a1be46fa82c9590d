"""A stream whose replica died in the middle of it is finished by another replica.

    request      may it be continued, and what is the other replica asked?    pure
    transcript   what the client has been sent so far, as text and counts      pure
    seam         the second stream as if it were the rest of the first         pure
    store        how many bytes of text may be kept, of one stream and of all
    stream       one stream over as many replicas as it takes

Off by default. What is not beyond doubt is not continued: there the client sees the truncation.
"""
