"""Runs the inequality join in Polars, from the scan to the last row: prints wall s, CPU s, then the row.

usage: run_polars.py R_PATH S_PATH
"""

import resource
import sys
import time


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


import polars
from polars import col

left, right = sys.argv[1:]
started, used = time.perf_counter(), cpu()
r = polars.scan_csv(left)
s = polars.scan_csv(right).rename({"id": "s_id", "a": "s_a", "b": "s_b"})
pairs = r.join_where(s, col("a") < col("s_a"), col("b") > col("s_b"), col("a") > col("s_a") - 1000)
row = pairs.select(polars.len(), (col("a") - col("s_a") + col("b") - col("s_b")).sum()).collect().row(0)
print(time.perf_counter() - started, cpu() - used)
print(",".join(str(value) for value in row))
