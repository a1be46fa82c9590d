"""Compares GPU-hours and costs of the capacity plan, of a static fleet and of the reactive rule."""
