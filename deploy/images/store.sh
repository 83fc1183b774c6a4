# shellcheck shell=bash
# Sourced by the scripts beside it: buildah with a store of its own, which needs neither overlay file systems nor namespaces.
image_store=${IMAGE_STORE:-build/images}
mkdir -p "$image_store"
image_store=$(readlink -f "$image_store")
export BUILDAH_ISOLATION=chroot
store() { buildah --root "$image_store/storage" --runroot "$image_store/run" --storage-driver vfs "$@"; }
