"""The passes: one file each; ``tilec/pipeline.py`` is the only list of them."""
