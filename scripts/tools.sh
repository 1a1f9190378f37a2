# Which cmake, ninja and python3 to use; sourced by the scripts beside it.
#
# A name on PATH may be a shim that answers nothing, or too old: each candidate is asked for its version. The
# distribution's own cmake comes first (CMAKE names another), so that everybody builds with what a fresh machine
# has. Each find_ function prints a path, or fails.
# shellcheck shell=bash

readonly CMAKE_MIN=3.25
# numpy and transformers as pinned in tests/requirements.txt want this
readonly PYTHON_MIN=3.11

# at_least HAD WANTED: versions compared as numbers
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

find_cmake() {
    local tool version
    for tool in "${CMAKE:-}" /usr/bin/cmake "$(command -v cmake || true)"; do
        version=$("$tool" --version 2>/dev/null | sed -n '1s/^cmake version //p' || true)
        if [ -n "$version" ] && at_least "$version" "$CMAKE_MIN"; then
            echo "$tool"
            return 0
        fi
    done
    return 1
}

find_ninja() {
    local tool
    for tool in "$(command -v ninja || true)" /usr/bin/ninja; do
        if "$tool" --version >/dev/null 2>&1; then
            echo "$tool"
            return 0
        fi
    done
    return 1
}

# find_python_that CODE: the first interpreter that is new enough and for which the code succeeds
find_python_that() {
    local tool
    for tool in "$(command -v python3 || true)" /usr/bin/python3; do
        if "$tool" -c "import sys
sys.exit(sys.version_info < tuple(map(int, '$PYTHON_MIN'.split('.'))))
$1" >/dev/null 2>&1; then
            echo "$tool"
            return 0
        fi
    done
    return 1
}

find_python() { find_python_that ""; }

find_venv_python() { find_python_that "import venv, ensurepip"; }

# venv_folder PYTHON: named by what it holds, so that clones share it and a changed pin makes a new one
venv_folder() {
    local key
    key=$({
        cat tests/requirements.txt
        "$1" -c 'import os, sys; print(sys.version, os.path.realpath(sys.executable))'
    } | sha256sum | cut -c1-12)
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/pawl/venv-$key"
}

# The tests' interpreter, once scripts/setup check has made it.
venv_python() {
    local python folder
    python=$(find_venv_python) || return 1
    folder=$(venv_folder "$python")
    [ -e "$folder/complete" ] || return 1
    echo "$folder/bin/python"
}
