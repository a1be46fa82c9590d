"""A source of replicas in Kubernetes: the endpoints of a Service, or pods with certain labels.

The source lists the objects once and then watches them, as the API prescribes: "Efficient detection
of changes" in https://kubernetes.io/docs/reference/using-api/api-concepts/.

- Pure: `objects.py` (the fields of the API's objects), `annotations.py` (settings that objects
  state), `endpoints.py` (the engines that an object names), `endpoint_set.py` (all objects, and the
  replicas that follow from them).
- I/O: `client.py` (the official client), `source.py` (list, watch, back-off).
"""
