"""Compares the GPU-hours of the capacity plan, of a static fleet and of the reactive rule."""
