# Sourced by serve and test, from the top of the checkout: a Python, and .venv with the project in it.

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }

die() {
  printf '%s\n' "$*" >&2
  exit 2
}

# install_packages NAME...: those of Debian's packages that are missing.
install_packages() {
  local missing=() package root=()
  command -v dpkg-query >/dev/null || { say "Not a Debian: $* must be there already"; return; }
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || die "Missing here: sudo apt-get install ${missing[*]}"
    root=(sudo)
  fi
  say "Installing ${missing[*]}"
  "${root[@]}" apt-get update -q
  # coturn would otherwise start a TURN server of its own.
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -qy --no-install-recommends "${missing[@]}"
}

# What llama.cpp is linked with and no Python package brings.
install_libraries() {
  [ "$(uname)" = Linux ] || return 0
  PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -F libgomp.so.1 >/dev/null || install_packages libgomp1
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
