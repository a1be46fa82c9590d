"""Reports and stores the usage of tenants, and reports their budgets."""
