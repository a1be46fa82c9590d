"""`hedgerow audit`: who shares a line with whom, who delays whom, and what it costs at p99.

Read the modules in this order: `rows` (a line of the log), `residency` (a request's time at its
replica), `sweep` (all of them in the order of time), `survey` (first pass: which tenants there are,
how long a prompt takes alone), `blame` (second pass: who delayed whom), `findings` (the result),
`report_section` (the result in words).
"""
