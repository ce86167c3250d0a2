"""Runs one query in DuckDB, from connect to the last row: prints wall s, CPU s, then the rows as csv.

usage: run_duckdb.py QUERY NAME=PATH ...
"""

import resource
import sys
import time


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


import duckdb

query, *tables = sys.argv[1:]
started, used = time.perf_counter(), cpu()
connection = duckdb.connect(config={"threads": 2})
for table in tables:
    name, path = table.split("=", 1)
    connection.execute(f"CREATE VIEW {name} AS FROM read_csv('{path}')")
rows = connection.execute(query).fetchall()
print(time.perf_counter() - started, cpu() - used)
for row in rows:
    print(",".join(str(value) for value in row))
