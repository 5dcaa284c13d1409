#!/usr/bin/env bash
# Installs the course into .venv, on a Debian that has Python: in a Codespace, or another development container.
# The optional system packages are those of the README's table; torch is the CPU build, a tenth of the default one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    chromium bubblewrap clang lld fonts-dejavu-core >/dev/null
python3 -m venv .venv
.venv/bin/pip install -q --extra-index-url https://download.pytorch.org/whl/cpu -e .
.venv/bin/mlhood doctor
