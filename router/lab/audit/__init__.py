"""`hedgerow audit`: finds which tenants share replicas and which tenants delay others, and what the
delays cost at the p99 of the time to first token.

Reading order of the modules: `rows` (a line of the log), `residency` (a request's time at its
replica), `sweep` (events of all requests in order of time), `survey` (first pass over the log: the
tenants, and the time of a prompt on an idle replica), `blame` (second pass: the causes of each
wait), `findings` (the result), `report_section` (the result as text).
"""
