"""Faults that other compilers of kernels had, each as a small program whose result is known."""
