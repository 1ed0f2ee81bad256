#!/bin/sh
# Installs the given Debian packages, or reports which are missing. The Makefile calls it only when one is needed.
set -eu
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "Missing: $*. Install it with your system's package manager (Debian, Ubuntu: sudo apt-get install $*), then run make again." >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends "$@"
