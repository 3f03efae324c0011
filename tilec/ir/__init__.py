"""The IR of tilec: one set of classes, one printer, one parser, for all levels."""
