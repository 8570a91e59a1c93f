#!/bin/sh
# sh scripts/image.sh IMAGE [UI_IMAGE]: build deploy/Dockerfile as IMAGE with docker, podman or buildah, whichever there
# is; and deploy/Dockerfile.ui on top of it as UI_IMAGE, with which `longboat install --ui` can run the dashboard.
#   BASE=python:3.12-slim@sha256:...   what the image stands on (default: see deploy/Dockerfile)
#   BUILDER=...                        the same with pip, where BASE has none
#   PIP_OPTIONS='--index-url=...'      where pip finds packages
#   TOOL='buildah --root DIR'          the program that builds, with its own options
#   BUILD_OPTIONS='--isolation=chroot' options of the build
set -eu
cd "$(dirname "$0")/.."
image=${1:-}
ui_image=${2:-}
if [ -z "$image" ]; then
    echo "error: which name has the image? type: make image IMAGE=registry.example.org/longboat:0.1.0" >&2
    exit 2
fi
if [ -z "${TOOL:-}" ]; then
    for name in docker podman buildah; do
        if command -v "$name" >/dev/null 2>&1; then
            TOOL=$name
            break
        fi
    done
fi
if [ -z "${TOOL:-}" ]; then
    echo "error: an image is built by docker, podman or buildah; on Debian and Ubuntu type: sudo apt-get install -y buildah" >&2
    exit 1
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || true)
set -- --build-arg "VERSION=$version" --build-arg "REVISION=$revision"
for argument in BASE BUILDER PIP_OPTIONS; do
    eval "value=\${$argument:-}"
    if [ -n "$value" ]; then
        set -- "$@" --build-arg "$argument=$value"
    fi
done
# TOOL and BUILD_OPTIONS are words: they are split on purpose.
# shellcheck disable=SC2086
$TOOL build ${BUILD_OPTIONS:-} "$@" --file deploy/Dockerfile --tag "$image" .
if [ -n "$ui_image" ]; then
    set -- --build-arg "IMAGE=$image"
    for argument in BUILDER PIP_OPTIONS; do
        eval "value=\${$argument:-}"
        if [ -n "$value" ]; then
            set -- "$@" --build-arg "$argument=$value"
        fi
    done
    # shellcheck disable=SC2086
    $TOOL build ${BUILD_OPTIONS:-} "$@" --file deploy/Dockerfile.ui --tag "$ui_image" .
fi
