"""`hedgerow audit`: who shares a line with whom, who delays whom, and what it costs at p99.

Reads in this order: `rows` (a line of the log), `stays` (a request's time at its replica), `sweep`
(all of them in the order of time), `survey` (first pass: who is there, how long a prompt takes
alone), `blame` (second pass: who delayed whom), `findings` (the result), `letter` (in words).
"""
