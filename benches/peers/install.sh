#!/bin/sh
# Installs the engines that `compare` runs against into a folder outside of the repository.
#
# usage: install.sh FOLDER [--flink]
set -eu
folder="$1"
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet duckdb==2.0.1 polars==2.1.0
if [ "${2:-}" = "--flink" ]; then
    # Its Python package wants its own versions of others.
    python3 -m venv "$folder/flink"
    "$folder/flink/bin/pip" install --quiet apache-flink==2.3.0
fi
