"""`hedgerow audit`: finds which tenants share replicas and which tenants delay others, and what the
delays cost at the p99 of the time to first token.

Reading order of the modules: `residency` (the lines of the log, the time of each request at its
replica, and the events in order of time), `survey` (first pass over the log: the tenants, and the
time of a prompt on an idle replica), `blame` (second pass: the causes of each wait), `findings`
(the result), `report_section` (the result as text).
"""
