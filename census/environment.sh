#!/usr/bin/env bash
# A virtual environment with this tree's audit and another version of transformers, for its reported leaks:
#
#     census/environment.sh 5.17.0
#     _build/transformers-5.17.0/bin/python census/census.py DogeForCausalLM RoFormerForCausalLM
#
# The classes are those of census/transformers-5.17.0.json; without any, all of the version are audited.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=_build/transformers-${1:?the version of transformers is needed}
python3 -m venv "$folder"
"$folder/bin/pip" install -q "transformers==$1" $(grep -E '^(torch|numpy)==' constraints.txt)
"$folder/bin/pip" install -q --no-deps -e .
