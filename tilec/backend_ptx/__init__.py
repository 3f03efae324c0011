"""PTX out of the cta level, and everything between PTX text and a running kernel."""
