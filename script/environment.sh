# Sourced by serve and test, from the top of the checkout: a Python, and .venv with the project in it.

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }

die() {
  printf '%s\n' "$*" >&2
  exit 2
}

# A Python that fits and can make virtual environments. PYTHON=... chooses another.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.13}; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
      >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  die "Python 3.11, 3.12 or 3.13 with its venv module is needed (on Debian: apt install python3-venv)."
}

# make_environment: .venv with nothing in it, unless it is there.
make_environment() {
  if .venv/bin/python -c '' >/dev/null 2>&1; then return; fi
  local python
  python=$(find_python)
  say "Making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
}

# install_project [EXTRA]: make .venv and install the project, unless that was done for this pyproject.toml.
install_project() {
  local extra=${1:-} stamp=.venv/.installed wanted
  wanted="$(cksum <pyproject.toml) $PWD"
  if [ -x .venv/bin/python ] && grep -qxF "$wanted" "$stamp${extra:+-$extra}" 2>/dev/null; then
    return
  fi
  make_environment
  say "Installing the project and what it needs; the first time this takes a few minutes"
  local quiet=-qq
  if [ -t 1 ]; then quiet=; fi
  # The PyPI build of torch for Linux brings CUDA, several gigabytes of it. Another index may have a smaller one.
  if [ -n "$extra" ] && [ -n "${TORCH_INDEX_URL:-}" ]; then
    .venv/bin/pip install $quiet --disable-pip-version-check --index-url "$TORCH_INDEX_URL" \
      "$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)"
  fi
  .venv/bin/pip install $quiet --disable-pip-version-check --editable ".${extra:+[$extra]}"
  echo "$wanted" >"$stamp"
  if [ -n "$extra" ]; then echo "$wanted" >"$stamp-$extra"; fi
}
