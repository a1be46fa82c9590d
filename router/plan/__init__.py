"""`hedgerow plan`: advises how many replicas each model needs, by region and type of replica.

- `sources`: the demand in windows and the running replicas, from access logs or from Prometheus.
- `forecasts`: the demand of the next windows, and how good such forecasts were on held-out windows.
- `decision`: an integer program, the reactive rule, and the reason for each number. Pure.
- `output`: table, JSON, HTML page, and gauges for an autoscaler.
- `types_file`: the types of replicas and the limits; `observed`: what the sources return.

The program is that of SageServe (arXiv 2502.14617). Must never: scale anything, or be imported by
the data plane.
"""
