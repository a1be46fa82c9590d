"""Where the demand comes from: access logs and other traces, or a Prometheus server."""
