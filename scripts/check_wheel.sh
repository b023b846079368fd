#!/bin/sh
# Builds the wheel, installs it without extras into an empty environment, and predicts there from another folder with
# models that an environment with torch has trained. Says how much the installation weighs.
# Usage: scripts/check_wheel.sh [PYTHON of an environment that can train; default .venv/bin/python]
set -eu
cd "$(dirname "$0")/.."
root=$PWD
trainer=${1:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$trainer" -m venv "$folder/empty"
pip="$folder/empty/bin/pip --disable-pip-version-check --quiet"
$pip wheel --no-deps --wheel-dir "$folder/dist" .
$pip install --constraint constraints.txt "$folder"/dist/longtail-*.whl
for extra in torch faiss tokenizers rich; do
    if "$folder/empty/bin/python" -c "import $extra" 2>/dev/null; then
        echo "error: the base install brings $extra"
        exit 1
    fi
done

size() { du -cm "$@" | tail -n 1 | cut -f 1; }
packages=$("$folder/empty/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cd "$packages"
rm -rf pip* setuptools* pkg_resources* _distutils_hack distutils-precedence.pth
echo "wheel: $(du -k "$folder"/dist/*.whl | cut -f 1) kB; installed, in MB:"
for package in llvmlite scipy numpy numba longtail safetensors click; do
    echo "  $package $(size "$package"*)"
done
echo "  all $(size .)"
cd "$root"

longtail() { PYTHONPATH="$root/src" "$trainer" -m longtail "$@"; }
longtail train examples/books.csv --out "$folder/tiny" --recipe tiny --quiet
longtail train examples/books.csv --out "$folder/direct" --set train.epochs=1 --device cpu --quiet
longtail pack "$folder/direct" "$folder/packed" --dtype int8 >/dev/null

mkdir "$folder/elsewhere"
cd "$folder/elsewhere"
unset PYTHONPATH
for model in tiny direct packed; do
    answer=$("$folder/empty/bin/longtail" predict "$folder/$model" "a hive of honey bees" -k 1)
    echo "$model: $answer"
    case $answer in *beekeeping*) ;; *) exit 1 ;; esac
done
