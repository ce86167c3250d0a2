"""Runs one query in Flink SQL with two slots over bounded csv files and prints the last row.

usage: run_flink.py QUERY NAME=PATH:COLUMNS ...     COLUMNS as in SQL
"""

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

query, *tables = sys.argv[1:]
environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
environment.get_config().set("parallelism.default", "2")
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
print(",".join(str(value) for value in last))
