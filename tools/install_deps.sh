#!/usr/bin/env bash
# Installs the Debian packages that are missing for: build, test, demo or ci. Quick if none is.
set -euo pipefail

build="g++ cmake ninja-build libdnnl-dev libhwy-dev nlohmann-json3-dev libtomlplusplus-dev
       libcli11-dev libfmt-dev libxxhash-dev libzstd-dev zlib1g-dev libopenmpi-dev
       libpcre2-dev libsentencepiece-dev libutf8proc-dev"
test="$build libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev python3 openmpi-bin"
demo="$build bible-kjv"
ci="$test bible-kjv git ccache clang-16 clang-tidy-16 clang-format-16 libclang-rt-16-dev
    llvm-16"

case "${1:-}" in
  build | test | demo | ci) wanted=${!1} ;;
  *) echo "usage: install_deps.sh build|test|demo|ci" >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null; then
  echo "install_deps: not a Debian system; you need the likes of:" $wanted >&2
  exit 0
fi
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p')
missing=()
for package in $wanted; do
  grep -qxF -- "$package" <<< "$installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || { echo "install_deps: as root, run: apt-get install ${missing[*]}" >&2; exit 1; }
  root=(sudo)
fi
echo "install_deps: installing ${missing[*]}"
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" > /dev/null
