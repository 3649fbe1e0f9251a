#!/usr/bin/env bash
# One cluster for demo and tests, whatever this machine has:
#
#   scripts/cluster.sh possible      whether there is a way to have one; says what is missing if not
#   scripts/cluster.sh up            a kind cluster (control plane and one worker, audit log on)
#   scripts/cluster.sh images        build both images and bring them to where its nodes find them
#   scripts/cluster.sh model FOLDER  the same with a model's folder, as an image to be mounted
#   scripts/cluster.sh helms         Helm 3 and 4, with a colon between them
#   scripts/cluster.sh image NAME    what an image is called inside the cluster
#   scripts/cluster.sh again NAME TAG   bring that image there under another tag too
#   scripts/cluster.sh audit         where the audit log of its API server lies, if anywhere
#   scripts/cluster.sh run CMD ...   run a command that talks to the cluster
#   scripts/cluster.sh down          remove it
#
# With Docker this is plain kind. With KUBECONFIG and TORPOR_REGISTRY set it is any cluster that pulls
# from that registry; up and down then do nothing. Instead of the registry, TORPOR_IMAGE_OPERATOR,
# _RUNTIME and _MODEL may name images that are there already (repository:tag): then nothing is built.
# Where no engine answers, a folder of scripts that provides engine, node image and registry is used
# (TORPOR_CLUSTER_TOOLS). Nothing else in the repository knows of these differences.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cluster=${TORPOR_CLUSTER:-torpor}
work=${TORPOR_CLUSTER_WORK:-$root/build/cluster}
tools=${TORPOR_CLUSTER_TOOLS:-$root/../shared/cluster}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/pyproject.toml")

if [ -n "${KUBECONFIG:-}" ] && [ -n "${TORPOR_REGISTRY:-}${TORPOR_IMAGE_RUNTIME:-}" ]; then kind=given
# Inside what this has run, KIND_NS tells that the engine is the scripts' own.
elif [ -z "${KIND_NS:-}" ] && command -v kind >/dev/null && docker info >/dev/null 2>&1
then kind=docker
elif [ -x "$tools/up.sh" ]; then
  kind=tools
  # One place whatever TMPDIR is: a start must find the daemon that a killed run has left.
  export KIND_WORK=${KIND_WORK:-/tmp/torpor-cluster}
  . "$tools/env.sh"
else
  echo "error: no container engine answers here. Start Docker (kind is needed too), or set KUBECONFIG" \
    "and TORPOR_REGISTRY to use a cluster that is there." >&2
  exit 1
fi
[ "$kind" = tools ] || command -v kubectl >/dev/null || {
  echo "error: kubectl is missing. Install it in the version of the cluster." >&2
  exit 1
}
[ "${1:-}" != possible ] || exit 0
# A file of this cluster alone: whatever else kubectl is set to, the tests talk to no other.
[ "$kind" = given ] || export KUBECONFIG=$work/kubeconfig

# What only takes long gives way to the tests that run beside it. Not what starts a daemon: the whole
# cluster would inherit it.
gently="nice -n 19"

# Helm is not everywhere; a Go compiler makes it once.
bin=${TORPOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/torpor}/bin
PATH=$PATH:$bin
helm3=v3/cmd/helm@v3.20.0 helm4=v4/cmd/helm@v4.1.4
make_helm() { # VERSION NAME
  local folder; folder=$(mktemp -d)
  mkdir -p "$bin"
  GOBIN=$folder $gently go install "helm.sh/helm/$1" >&2 && mv "$folder/helm" "$bin/$2"
  rm -rf "$folder"
}
need_helm() {
  ! command -v helm >/dev/null || return 0
  command -v go >/dev/null || { echo "error: helm is missing; install Helm 3 or 4." >&2; exit 1; }
  make_helm $helm4 helm
}

# Both majors of Helm, for the tests of the chart; without a Go compiler only what is there.
helms() {
  need_helm
  local other=helm3
  [[ $(helm version --template '{{.Version}}') != v3* ]] || other=helm4
  if ! command -v $other >/dev/null && command -v go >/dev/null; then make_helm "${!other}" $other; fi
  command -v helm $other | paste -sd:
}

# The engine itself, where the folder of scripts has to provide one.
need_packages() {
  local program missing=
  for program in dockerd iptables ip debootstrap buildah pgrep; do
    command -v "$program" >/dev/null || missing=$program
  done
  [ -n "$missing" ] || return 0
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
    docker.io iptables iproute2 debootstrap procps buildah; } >"$work/packages.log" 2>&1 ||
    { tail -n 20 "$work/packages.log" >&2; exit 1; }
}

# The programs of the cluster, where it can be reached.
inside() { case $kind in tools) in_ns "$@" ;; *) "$@" ;; esac; }

config() { # kind's configuration, with the folders of this checkout
  mkdir -p "$work/audit"
  : >>"$work/audit/audit.jsonl" # ours, so that we may read what the API server appends to it
  cp "$root/tests/e2e/audit-policy.yaml" "$work/audit/policy.yaml"
  sed "s|AUDIT_FOLDER|$work/audit|" "$root/tests/e2e/kind.yaml" >"$work/kind.yaml"
  echo "$work/kind.yaml"
}

# Whether kind's cluster is there with all its nodes; a start that was killed leaves less.
whole() {
  local nodes
  nodes=$(kind get nodes --name "$cluster" 2>/dev/null) && [ -n "$nodes" ] &&
    kind export kubeconfig --quiet --name "$cluster" &&
    [ "$(kubectl get nodes --no-headers --request-timeout=10s 2>/dev/null | grep -cw Ready)" \
      -eq "$(wc -l <<<"$nodes")" ]
}

up() {
  need_helm
  case $kind in
    given) ;;
    docker)
      whole || {
        kind delete cluster --quiet --name "$cluster"
        kind create cluster --name "$cluster" --config "$(config)" --wait 180s
      } ;;
    tools)
      need_packages
      {
        $gently "$tools/build.sh" files && "$tools/up.sh" "$cluster" "$(config)"
      } >"$work/up.log" 2>&1 || {
        tail -n 40 "$work/up.log" >&2
        for log in "$KIND_WORK"/*.log; do echo "== $log" >&2; tail -n 10 "$log" >&2; done
        exit 1
      } ;;
  esac
  [ "$kind" = given ] || inside kind export kubeconfig --quiet --name "$cluster"
}

down() {
  case $kind in
    given) ;;
    docker) kind delete cluster --name "$cluster" ;;
    tools)
      "$tools/down.sh" "$cluster" || true # it may never have been up
      # The daemon goes with the last cluster: another one may be somebody's.
      [ -n "$(in_ns kind get clusters 2>/dev/null)" ] || "$tools/down.sh" ;;
  esac
  rm -rf "$work"
}

# Bring a built image to where the nodes find it; tells how pods name it. usage: deliver NAME TAG
deliver() {
  local name=$1 tag=$2 id image
  id=$(cut -d: -f2 "$work/$name.id")
  case $kind in
    tools)
      image=registry.local/torpor-$name:$tag
      # Each node unpacks gigabytes of the runtime image: by far faster than with gzip.
      in_ns $gently buildah push --quiet --tls-verify=false --compression-format zstd --format oci "$id" \
        "docker://127.0.0.1:5000/${image#*/}" ;;
    docker)
      image=localhost/torpor-$name:$tag
      docker tag "$id" "$image"
      kind load docker-image --name "$cluster" "$image" >&2 ;;
    given)
      image=$TORPOR_REGISTRY/torpor-$name:$tag
      docker tag "$id" "$image"
      docker push --quiet "$image" >/dev/null ;;
  esac
  echo "$image"
}

# Build one image and deliver it. The tag is the image's own id, so that a node never takes an older
# build for this one. usage: build NAME CONTEXT FLAG ...
build() {
  local name=$1 context=$2 log=$work/build-$1.log there=TORPOR_IMAGE_${1^^} id
  shift 2
  [ -z "${!there:-}" ] || { echo "${!there}" | tee "$work/$name.image"; return; }
  case $kind in
    tools) $gently buildah bud --isolation chroot --network host --layers \
      --iidfile "$work/$name.id" "$@" "$context" ;;
    *) docker build --iidfile "$work/$name.id" "$@" "$context" ;;
  esac >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
  id=$(cut -d: -f2 "$work/$name.id")
  deliver "$name" "${id:0:12}" | tee "$work/$name.image"
}

# A built image under another tag too: one that was not there appears.
again() { # NAME TAG
  local there=TORPOR_IMAGE_${1^^}
  [ -z "${!there:-}" ] || { echo "The image ${!there} was named, not built here." >&2; exit 3; }
  deliver "$1" "$2"
}

images() {
  local flags=(--build-arg "VERSION=$version")
  if [ "$kind" = tools ]; then
    base_offline
    flags+=(--build-arg BASE_IMAGE=localhost/torpor-base)
    # This machine's certificates and pip settings, for the time of the build.
    [ -z "${SSL_CERT_FILE:-}" ] ||
      flags+=(--secret "id=ca,src=$SSL_CERT_FILE" --build-arg PIP_CERT=/run/secrets/ca)
    [ ! -e /etc/pip.conf ] || flags+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
  fi
  for target in operator runtime; do build "$target" "$root" --target "$target" "${flags[@]}"; done
}

# A model's folder as an image that pods mount.
model() { # folder
  printf 'FROM scratch\nCOPY . /\n' >"$work/model.Dockerfile"
  build model "$1" -f "$work/model.Dockerfile"
}

# Where no base image can be pulled: Debian with its Python, from packages.
base_offline() {
  ! buildah inspect --type image localhost/torpor-base >/dev/null 2>&1 || return 0
  local folder; folder=$(mktemp -d)
  $gently debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder/root" \
    >"$work/debootstrap.log" 2>&1 || { tail -n 20 "$work/debootstrap.log" >&2; exit 1; }
  tar -C "$folder/root" --numeric-owner --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
    --exclude='./usr/share/doc/*' --exclude='./dev/*' -cf "$folder/base.tar" .
  printf 'FROM scratch\nADD base.tar /\n' >"$folder/Dockerfile"
  $gently buildah bud --isolation chroot -t localhost/torpor-base "$folder" >"$work/build-base.log" 2>&1
  rm -rf "$folder"
}

mkdir -p "$work"
case ${1:-} in
  up) up ;;
  down) down ;;
  images) images ;;
  model) model "$2" ;;
  helms) helms ;;
  image) cat "$work/$2.image" ;;
  again) again "$2" "$3" ;;
  audit) [ "$kind" = given ] || echo "$work/audit/audit.jsonl" ;;
  run) shift; inside "$@" ;;
  *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
