"""How true the simulator is: the same small workloads over HTTP and simulated, figure by figure."""
