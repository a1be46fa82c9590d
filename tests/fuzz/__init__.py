"""Fuzz targets for parsers of hostile bytes: the wire layer, bodies, forms and streams."""
