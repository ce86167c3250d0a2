"""Runs one query in Flink SQL with two slots over bounded csv files: prints wall s and CPU s of the whole process
with its Java virtual machine, then the last row.

usage: run_flink.py QUERY NAME=PATH:COLUMNS ...     COLUMNS as in SQL
"""

import os
import pathlib
import sys
import time

started = time.perf_counter()


def cpu():
    """Of this process and all that came from it."""
    parents, used = {}, {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        used[int(stat.parent.name)] = int(fields[11]) + int(fields[12])

    def is_own(process):
        while process not in (0, os.getpid()):
            process = parents.get(process, 0)
        return process != 0

    return sum(ticks for process, ticks in used.items() if is_own(process)) / os.sysconf("SC_CLK_TCK")


from pyflink.table import EnvironmentSettings, TableEnvironment

query, *tables = sys.argv[1:]
environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
for setting, value in {
    "parallelism.default": "2",
    # Else each pair is a change of the result that goes through Python.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "5 s",
    "table.exec.mini-batch.size": "1000000",
}.items():
    environment.get_config().set(setting, value)
for table in tables:
    name, rest = table.split("=", 1)
    path, columns = rest.split(":", 1)
    environment.execute_sql(
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv',"
        " 'csv.ignore-parse-errors' = 'true')"
    )
last = None
with environment.execute_sql(query).collect() as rows:
    for row in rows:
        last = row
print(time.perf_counter() - started, cpu())
print(",".join(str(value) for value in last))
