"""Claims of cost and speed, each as a ratio of two sides measured in one run.

Run with ``python -m pytest tests/benchmarks --benchmark-only``. Nothing here
fails for being slow: the tables at the end of the run say what was measured. A
file named by the variable ``BENCHMARK_TABLE`` gets them too.
"""
