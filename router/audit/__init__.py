"""`hedgerow audit`: which tenants share replicas, which delays which, and the cost at p99.

Reading order of the modules: `rows` (a line of the log), `residency` (a request's time at its
replica), `sweep` (events of all requests in order of time), `survey` (first pass: the tenants, and
the time of a prompt on an idle replica), `blame` (second pass: the causes of each wait), `findings`
(the result), `report_section` (the result as text).
"""
