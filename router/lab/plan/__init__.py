"""`hedgerow plan`: advises how many replicas each model needs, by region and type of replica.

- `sources`: read the demand in time windows and the running replicas, from access logs or from
  Prometheus.
- `forecasts`: forecast the demand of the next windows, and test such forecasts on held-out windows.
- `decision`: computes the advice with an integer program or the reactive rule, and the reason for
  each number.
- `output`: formats the advice as a table, JSON, an HTML page, and gauges for an autoscaler.
- `types_file`: the types of replicas and the limits; `observed`: what the sources return.

The integer program is that of SageServe (arXiv 2502.14617). Must never: scale anything, or be
imported by the data plane.
"""
