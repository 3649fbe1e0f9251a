#!/usr/bin/env bash
# One cluster for demo and tests, whatever this machine has:
#
#   scripts/cluster.sh up            a kind cluster (control plane and one worker, audit log on)
#   scripts/cluster.sh images        build both images and bring them to where its nodes find them
#   scripts/cluster.sh run CMD ...   run a command that talks to the cluster
#   scripts/cluster.sh down          remove it
#
# With Docker this is plain kind. With KUBECONFIG and TORPOR_REGISTRY set it is any cluster that pulls
# from that registry; up and down then do nothing. Where no engine answers, a folder of scripts that
# provides engine, node image and registry is used (TORPOR_CLUSTER_TOOLS). Nothing else in the
# repository knows of these differences.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=${TORPOR_CLUSTER:-torpor}
work=${TORPOR_CLUSTER_WORK:-$root/build/cluster}
tools=${TORPOR_CLUSTER_TOOLS:-$root/../shared/cluster}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/pyproject.toml")

if [ -n "${TORPOR_REGISTRY:-}" ] && [ -n "${KUBECONFIG:-}" ]; then kind=given
elif docker info >/dev/null 2>&1 && [ -z "${DOCKER_HOST:-}" ]; then kind=docker
elif [ -x "$tools/up.sh" ]; then kind=tools; . "$tools/env.sh"
else
  echo "error: no container engine answers here. Start Docker (kind is needed too), or set KUBECONFIG" \
    "and TORPOR_REGISTRY to use a cluster that is there." >&2
  exit 1
fi

# The programs of the cluster, where it can be reached.
inside() { case $kind in tools) in_ns "$@" ;; *) "$@" ;; esac; }

config() { # kind's configuration, with the folders of this checkout
  mkdir -p "$work/audit"
  cp "$root/tests/e2e/audit-policy.yaml" "$work/audit/policy.yaml"
  sed "s|AUDIT_FOLDER|$work/audit|" "$root/tests/e2e/kind.yaml" >"$work/kind.yaml"
  echo "$work/kind.yaml"
}

up() {
  case $kind in
    given) ;;
    docker)
      kind get clusters 2>/dev/null | grep -qx "$name" ||
        kind create cluster --name "$name" --config "$(config)" --wait 180s ;;
    tools)
      "$tools/up.sh" "$name" "$(config)" >"$work/up.log" 2>&1 || {
        tail -n 40 "$work/up.log" >&2
        for log in "$KIND_WORK"/*.log; do echo "== $log" >&2; tail -n 10 "$log" >&2; done
        exit 1
      } ;;
  esac
}

down() {
  case $kind in
    given) ;;
    docker) kind delete cluster --name "$name" ;;
    tools) "$tools/down.sh" ;;
  esac
  rm -rf "$work"
}

# How images are called inside the cluster.
reference() {
  case $kind in
    given) echo "$TORPOR_REGISTRY/torpor-$1:$2" ;;
    docker) echo "torpor-$1:$2" ;;
    tools) echo "registry.local/torpor-$1:$2" ;;
  esac
}

build() { # target
  local image; image=$(reference "$1" "$version")
  case $kind in
    tools) build_offline "$1" "torpor-$1:$version"
      in_ns buildah push --quiet --tls-verify=false "torpor-$1:$version" "docker://127.0.0.1:5000/torpor-$1:$version" ;;
    *) docker build --quiet --target "$1" --build-arg VERSION="$version" -t "$image" "$root" >/dev/null
      if [ $kind = given ]; then docker push --quiet "$image"; else kind load docker-image --name "$name" "$image"; fi ;;
  esac
  echo "$image"
}

# Without an engine: buildah, a base image made from packages, this machine's pip settings and
# certificates for the time of the build.
build_offline() { # target, name
  base_offline
  local settings=(--isolation chroot --network host --layers --quiet)
  local certificates=${SSL_CERT_FILE:-}
  [ -z "$certificates" ] || settings+=(--volume "$certificates:/etc/build-certificates.pem:ro"
    --env SSL_CERT_FILE=/etc/build-certificates.pem --env PIP_CERT=/etc/build-certificates.pem)
  [ ! -e /etc/pip.conf ] || settings+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
  buildah bud "${settings[@]}" --build-arg BASE_IMAGE=localhost/torpor-base --build-arg VERSION="$version" \
    --target "$1" -t "$2" "$root" >"$work/build-$1.log" 2>&1 || { tail -n 40 "$work/build-$1.log" >&2; exit 1; }
}

base_offline() {
  ! buildah inspect --type image localhost/torpor-base >/dev/null 2>&1 || return 0
  local folder; folder=$(mktemp -d)
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder/root" \
    >"$work/debootstrap.log" 2>&1 || { tail -n 20 "$work/debootstrap.log" >&2; exit 1; }
  tar -C "$folder/root" --numeric-owner --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
    --exclude='./usr/share/doc/*' --exclude='./dev/*' -cf "$folder/base.tar" .
  printf 'FROM scratch\nADD base.tar /\n' >"$folder/Dockerfile"
  buildah bud --isolation chroot --quiet -t localhost/torpor-base "$folder" >/dev/null
  rm -rf "$folder"
}

images() {
  mkdir -p "$work"
  for target in operator runtime; do build "$target" >"$work/$target.image"; done
  cat "$work"/*.image
}

case ${1:-} in
  up) up ;;
  down) down ;;
  images) images ;;
  image) reference "$2" "$version" ;;
  run) shift; inside "$@" ;;
  *) sed -n '2,13p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//' >&2; exit 2 ;;
esac
