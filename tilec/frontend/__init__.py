"""The language: from text to `tile` level IR (parse, check, lower)."""
