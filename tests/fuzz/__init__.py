"""Fuzz targets of what reads hostile bytes: the wire layer, the body intake, forms and streams."""
