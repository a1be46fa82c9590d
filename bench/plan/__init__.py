"""GPU-hours of a plan, of a static fleet and of the reactive rule, at equal SLO attainment."""
