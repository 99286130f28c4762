#!/usr/bin/env bash
# A small fleet behind a real kubelet: what no test of `make test` can show.
#
#   tests/ci/kind.sh                    in a cluster of kind's, which is gone afterwards
#   tests/ci/kind.sh --without-kubelet  against the tests' own API server: all but what containers do
#
# The first needs Docker (or ENGINE=podman), kubectl and Go; it builds our image, and pulls those of
# kind, of Python and of llama.cpp. The second takes the cluster of KUBECONFIG, one that
# `python -m tests.support.cluster` started and that has nothing of a fleet in it; else it starts one.
# KEEP=1 leaves kind's cluster. LOGS is where logs go (build/ci/kind).

LOGS="${LOGS:-$(dirname "${BASH_SOURCE[0]}")/../../build/ci/kind}"
mkdir -p "$LOGS"
LOGS="$(cd "$LOGS" && pwd)"
# shellcheck source=tests/ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KIND_VERSION=v0.33.0 # it says which Kubernetes: one node image, by its digest
CLUSTER=fleet-ci
IMAGE=localhost/fleet-reconciler:ci
POD_IMAGE=localhost/fleet-reconciler:ci-trusting # for pods, which clone the fleet's repository
SYSTEM=fleet-reconciler
OURS=inference.llmkube.dev
URL=http://chat.default.svc:8080

has_kubelet=true
case "${1:-}" in
"") ;;
--without-kubelet) has_kubelet=false ;;
*) die "unknown: $1 (it knows --without-kubelet)" ;;
esac

main() {
	local address=127.0.0.1
	trap 'leave $?' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	step 600 have_venv
	if $has_kubelet; then
		step 300 have_tools
		step 900 build_image
		step 420 start_cluster
		address="$(host_address)"
		step 30 serve_git "$address"
		step 300 build_pod_image
		step 180 load_images
		step 900 pull_engine_image
	else
		step 600 use_api_server
		step 30 serve_git "$address"
		not_here "our image, built, loaded and run (needs a container engine)"
	fi
	export KUBECONFIG="$work/kubeconfig"

	step 180 install
	step 60 push_service
	step 600 service_gets_ready
	step 60 model_came_by_a_job
	if $has_kubelet; then
		step 60 probes_hold
		step 180 clients_are_answered
		step 420 a_rollout_cuts_no_request
	else
		not_here "images pulled and containers run; probes, preStop and the companion's order (needs a kubelet)"
		not_here "requests through the Service (needs kube-proxy)"
		step 60 the_job_fetches_as_a_process
		step 120 a_change_is_rolled_out
	fi
	step 180 removal_leaves_the_claim_alone
	step 120 uninstall
	if $has_kubelet; then
		step 120 delete_cluster
	fi
}

# --- a cluster -----------------------------------------------------------------------------------

have_tools() {
	local lacking=""
	engine >/dev/null
	command -v kubectl >/dev/null || lacking="$lacking kubectl"
	command -v git >/dev/null || lacking="$lacking git"
	[ -z "$lacking" ] || die "this machine lacks:$lacking"
	if [ ! -x "$(kind_program)" ]; then
		command -v go >/dev/null || die "kind is built from its Go module: https://go.dev/dl, or brew install go"
		GOBIN="$(dirname "$(kind_program)")" go install "sigs.k8s.io/kind@$KIND_VERSION"
	fi
	"$(kind_program)" version
	"$(engine)" version
	kubectl version --client
}

engine() {
	local name
	for name in ${ENGINE:-docker podman}; do
		if command -v "$name" >/dev/null; then
			echo "$name"
			return
		fi
	done
	die "no container engine: it needs ${ENGINE:-docker or podman}; --without-kubelet shows what can be shown without"
}

kind_program() {
	echo "${XDG_CACHE_HOME:-$HOME/.cache}/fleet-reconciler/kind-$KIND_VERSION/kind"
}

kind() {
	KIND_EXPERIMENTAL_PROVIDER="$(engine)" "$(kind_program)" "$@"
}

build_image() {
	# An attestation would make it an index of images, which kind cannot load.
	BUILDX_NO_DEFAULT_ATTESTATIONS=1 "$(engine)" build -f deploy/containers/reconciler.Containerfile -t "$IMAGE" .
}

start_cluster() {
	kind create cluster --name "$CLUSTER" --kubeconfig "$work/kubeconfig" --wait 300s
	touch "$work/has-cluster"
}

# An address of this machine that pods reach: that of the network in which the node is.
host_address() {
	local format='{{range .IPAM.Config}}{{println .Gateway}}{{end}}' found
	[ "$(engine)" = docker ] || format='{{range .Subnets}}{{println .Gateway}}{{end}}'
	found="$("$(engine)" network inspect kind -f "$format" | grep -F . | head -n 1)"
	[ -n "$found" ] || die "the network of kind has no IPv4 gateway"
	echo "$found"
}

# What whoever has an authority of their own does: git, in the pods that fetch, trusts what the
# image trusts.
build_pod_image() {
	mkdir "$work/pod-image"
	cp "$work/git/tls/cert.pem" "$work/pod-image/fleet-ci.crt"
	cat >"$work/pod-image/Containerfile" <<-END
		FROM $IMAGE
		USER root
		COPY fleet-ci.crt /usr/local/share/ca-certificates/
		RUN update-ca-certificates
		USER 65532:65532
	END
	BUILDX_NO_DEFAULT_ATTESTATIONS=1 "$(engine)" build -f "$work/pod-image/Containerfile" -t "$POD_IMAGE" "$work/pod-image"
}

load_images() {
	"$(engine)" save -o "$work/images.tar" "$IMAGE" "$POD_IMAGE"
	kind load image-archive "$work/images.tar" --name "$CLUSTER"
}

# The one that the table of reconciler/placement/images.py names, by the node itself: a first answer
# to whether that tag is there.
pull_engine_image() {
	local image
	image="$("$VENV/bin/python" -c 'from reconciler.runtimes import RUNTIMES; print(RUNTIMES["llama-server"].images.by_accelerator["cpu"])')"
	"$(engine)" exec "$CLUSTER-control-plane" crictl pull "$image" ||
		die "$image cannot be pulled: is that tag there? reconciler/placement/images.py names it"
}

delete_cluster() {
	if [ "${KEEP:-}" = 1 ]; then
		cp "$work/kubeconfig" "$LOGS/kubeconfig"
		say "left as it is: export KUBECONFIG=$LOGS/kubeconfig; $(kind_program) delete cluster --name $CLUSTER"
	else
		kind delete cluster --name "$CLUSTER"
	fi
	rm "$work/has-cluster"
}

# Without a kubelet: nodes and pods that kwok keeps Ready.
use_api_server() {
	if [ -n "${KUBECONFIG:-}" ]; then
		cp "$KUBECONFIG" "$work/kubeconfig"
	else
		keep_running cluster "$VENV/bin/python" -m tests.support.cluster
		until_true 580 "the tests' cluster" grep -q '^export KUBECONFIG=' "$LOGS/cluster.log"
		cp "$(sed -n 's/^export KUBECONFIG=\([^ ]*\).*/\1/p' "$LOGS/cluster.log")" "$work/kubeconfig"
	fi
	export KUBECONFIG="$work/kubeconfig"
	ln -s "$("$VENV/bin/python" -m tests.support.kube_binaries | tail -n 1)/kubectl" "$work/kubectl"
	kubectl get --raw /version
	kubectl apply -f - <<-END
		apiVersion: v1
		kind: Node
		metadata: {name: ci-node, labels: {kubernetes.io/os: linux}}
		---
		apiVersion: v1
		kind: PersistentVolume
		metadata: {name: ci-volume}
		spec:
		  accessModes: [ReadWriteOnce]
		  capacity: {storage: 1Gi}
		  hostPath: {path: /nowhere}
	END
	kubectl patch node ci-node --subresource=status --type=merge -p \
		'{"status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}, "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}}}'
}

kubectl() {
	if $has_kubelet; then
		command kubectl "$@"
	else
		"$work/kubectl" "$@"
	fi
}

# --- a fleet -------------------------------------------------------------------------------------

serve_git() {
	mkdir "$work/git"
	git init --quiet --bare --initial-branch=main "$work/git/fleet.git"
	git init --quiet --initial-branch=main "$work/fleet"
	git -C "$work/fleet" remote add origin "$work/git/fleet.git"
	keep_running git "$VENV/bin/python" -m tests.support.git_http "$work/git" --address "$1"
	until_true 20 "a git server at $1" grep -q '^https://' "$LOGS/git.log"
	echo "$(head -n 1 "$LOGS/git.log")fleet.git" | tee "$work/git-url"
}

push() {
	git -C "$work/fleet" add --all
	git -C "$work/fleet" -c user.name=ci -c user.email=ci@example.com commit --quiet --message "$1"
	git -C "$work/fleet" push --quiet origin HEAD
	git -C "$work/fleet" rev-parse HEAD | tee "$work/commit"
}

reconcile() {
	XDG_CACHE_HOME="$work/cache" "$VENV/bin/reconcile" "$@"
}

cluster_words() {
	echo "--cluster=ci=$(kubectl config current-context)"
}

# As docs/kubernetes-install.md has it: all but the program, the Secret that it reads, the program.
install() {
	local words
	words="$(cluster_words)"
	reconcile install "$words"
	kubectl -n "$SYSTEM" create secret generic fleet-git --from-file="ca.pem=$work/git/tls/cert.pem"
	reconcile install "$words" -C "$(cat "$work/git-url")" --image "$IMAGE" --secret ca-file=fleet-git/ca.pem -- --interval 1s
	if $has_kubelet; then
		# Without a fleet yet it is alive and not ready.
		until_true 120 "the reconciler's container runs" program_has_started
	else
		not_here "the reconciler's own pod (needs a kubelet): a process has its words and its rights"
		start_program
	fi
}

program_has_started() {
	[ "$(kubectl -n "$SYSTEM" get pods -l app.kubernetes.io/name="$SYSTEM" -o 'jsonpath={.items[*].status.containerStatuses[*].started}')" = true ]
}

# With the words of the Deployment and a token of its account; the Secret's file is where we have it.
start_program() {
	local word own="$work/program.kubeconfig"
	local words=()
	kubectl config view --raw --flatten --minify >"$own"
	kubectl --kubeconfig "$own" config set-credentials program --token="$(kubectl -n "$SYSTEM" create token "$SYSTEM")"
	kubectl --kubeconfig "$own" config set-context --current --user=program
	while IFS= read -r word; do
		case "$word" in
		0.0.0.0:*) word=127.0.0.1:0 ;;
		/etc/fleet/*) word="$work/git/tls/cert.pem" ;;
		ci) word="ci=$(kubectl config current-context)" ;;
		esac
		words+=("$word")
	done < <(kubectl -n "$SYSTEM" get deployment "$SYSTEM" -o 'jsonpath={range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}')
	XDG_CACHE_HOME="$work/cache" XDG_STATE_HOME="$work/state" \
		keep_running program env XDG_CACHE_HOME="$work/cache" "$VENV/bin/reconcile" "${words[@]}" --kubeconfig "$own"
}

push_service() {
	mkdir "$work/fleet/models"
	# Many layers, so that a request takes a while: tens of seconds for its whole context.
	"$VENV/bin/python" - "$work/fleet/models/tiny.gguf" <<-'END'
		import sys
		from pathlib import Path
		from tests.support.gguf_models import tiny_llama

		print(tiny_llama(Path(sys.argv[1]), layers=64, context=16384))
	END
	cat >"$work/fleet/fleet.yaml" <<-END
		apiVersion: $OURS/v1alpha1
		kind: Fleet
		metadata: {name: ci}
		spec:
		  images: {fleet-agent: {any: $POD_IMAGE}}
	END
	cat >"$work/fleet/workers.yaml" <<-END
		apiVersion: $OURS/v1alpha1
		kind: FleetNode
		metadata: {name: workers}
		spec:
		  kubernetes:
		    cluster: ci
		    nodeSelector: {kubernetes.io/os: linux}
		    cache: pvc:1Gi
		  hardware: {memory: 6Gi}
	END
	cat >"$work/fleet/models/tiny.yaml" <<-END
		apiVersion: $OURS/v1alpha1
		kind: Model
		metadata: {name: tiny}
		spec: {source: models/tiny.gguf}
	END
	write_service 16384
	reconcile validate -C "$work/fleet"
	push "Serve a tiny model"
}

# write_service CONTEXT
write_service() {
	cat >"$work/fleet/chat.yaml" <<-END
		apiVersion: $OURS/v1alpha1
		kind: InferenceService
		metadata: {name: chat}
		spec:
		  modelRef: tiny
		  contextSize: $1
		  rollout: {drainTimeout: 120s}
		  placement: {nodes: [workers]}
	END
}

# Ready, and of the newest commit.
service_gets_ready() {
	kubectl wait --for=create inferenceservice/chat --timeout=60s
	kubectl wait "--for=jsonpath={.status.observedRevision}=$(cat "$work/commit")" inferenceservice/chat --timeout=60s
	kubectl wait --for=condition=Ready inferenceservice/chat --timeout=540s
	kubectl get inferenceservices,deployments,jobs,pods,persistentvolumeclaims
	kubectl -n "$SYSTEM" rollout status deployment "$SYSTEM" --timeout=60s # by its own readiness
	nothing_to_do
}

nothing_to_do() {
	reconcile "$(cluster_words)" -C "$(cat "$work/git-url")" --ca-file "$work/git/tls/cert.pem" --dry-run
}

# --- what it becomes -----------------------------------------------------------------------------

model_came_by_a_job() {
	kubectl wait --for=condition=Complete job --selector "$OURS/inference-service=chat" --timeout=30s
	kubectl wait --for='jsonpath={.status.phase}=Bound' persistentvolumeclaim/chat-models --timeout=10s
	if $has_kubelet; then
		kubectl logs --selector "$OURS/inference-service=chat,app.kubernetes.io/component=fetch" | tee "$LOGS/fetch.log"
		grep -q '/models/ready/' "$LOGS/fetch.log"
	fi
}

server_pod() {
	kubectl get pods --selector "$OURS/inference-service=chat,app.kubernetes.io/component=server" -o 'jsonpath={.items[0].metadata.name}'
}

# By the companion: it was ready before the kubelet said so, and answers the kubelet now.
probes_hold() {
	local pod restarts
	pod="$(server_pod)"
	kubectl wait --for=condition=Ready "pod/$pod" --timeout=30s
	kubectl get --raw "/api/v1/namespaces/default/pods/$pod:9091/proxy/readyz"
	kubectl get --raw "/api/v1/namespaces/default/pods/$pod:9091/proxy/healthz"
	kubectl logs "$pod" -c companion | tee "$LOGS/companion.log"
	grep -q ' ready$' "$LOGS/companion.log" || die "the companion never said that the engine is ready"
	restarts="$(kubectl get pod "$pod" -o 'jsonpath={.status.containerStatuses[*].restartCount} {.status.initContainerStatuses[?(@.name=="companion")].restartCount}')"
	[ "$restarts" = "0 0" ] || die "restarts of the engine and of its companion: $restarts"
}

# ask_in_pod NAME WORDS...: tests/ci/ask.py, in a pod of its own.
ask_in_pod() {
	local name="$1"
	shift
	kubectl run "$name" --image="$POD_IMAGE" --restart=Never --command -- python -c "$(cat tests/ci/ask.py)" "$URL" tiny "$@"
}

asked_in_vain() {
	kubectl logs "$1" >&2 || true
	die "the pod $1 did not get its answer"
}

clients_are_answered() {
	ask_in_pod short
	kubectl wait pod/short --for='jsonpath={.status.phase}=Succeeded' --timeout=120s || asked_in_vain short
	kubectl logs short
	kubectl delete pod short
}

# A long answer is under way when the fleet changes what serves it. The old pod goes first (it has
# the claim), and not before the answer is complete.
a_rollout_cuts_no_request() {
	local old
	old="$(server_pod)"
	keep_running companion-of-old kubectl logs --follow "$old" -c companion
	keep_running engine-of-old kubectl logs --follow "$old" -c engine
	ask_in_pod long --seconds 30
	until_true 120 "an answer under way" answer_begins
	write_service 8192
	push "Shorter context"
	until_true 60 "the old pod is told to go" is_going "$old"
	[ "$(kubectl get pod long -o 'jsonpath={.status.phase}')" = Running ] ||
		die "the answer was complete before the old pod was told to go: nothing is shown"
	kubectl wait pod/long --for='jsonpath={.status.phase}=Succeeded' --timeout=150s || asked_in_vain long
	kubectl logs long
	kubectl wait --for=delete "pod/$old" --timeout=60s
	until_true 10 "the drain saw the request" grep -q 'waiting for 1 request' "$LOGS/companion-of-old.log"
	until_true 10 "the drain came to its end" grep -q 'nothing was cut' "$LOGS/companion-of-old.log"
	cat "$LOGS/companion-of-old.log"
	kubectl get events --field-selector "involvedObject.name=$old" | tee "$LOGS/events-of-old.log"
	if grep -q FailedPreStopHook "$LOGS/events-of-old.log"; then
		die "the preStop hook failed"
	fi
	kubectl delete pod long
	service_gets_ready
	clients_are_answered
}

answer_begins() {
	kubectl logs long | grep -q 'the answer begins'
}

is_going() {
	[ -n "$(kubectl get pod "$1" --ignore-not-found -o 'jsonpath={.metadata.deletionTimestamp}')" ]
}

# --- the same, where nothing runs ----------------------------------------------------------------

a_change_is_rolled_out() {
	local old
	old="$(server_pod)"
	write_service 8192
	push "Shorter context"
	kubectl wait --for=delete "pod/$old" --timeout=60s
	service_gets_ready
}

# The container's own words, but for the volume: the model comes out of the repository, verified.
the_job_fetches_as_a_process() {
	local word
	local words=()
	while IFS= read -r word; do
		[ "$word" != /models ] || word="$work/models"
		words+=("$word")
	done < <(kubectl get job --selector "$OURS/inference-service=chat" -o 'jsonpath={range .items[0].spec.template.spec.containers[0].command[*]}{@}{"\n"}{end}{range .items[0].spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}')
	PATH="$VENV/bin:$PATH" "${words[@]}" --ca-file "$work/git/tls/cert.pem"
	cmp "$work/models/ready/"*/tiny.gguf "$work/fleet/models/tiny.gguf"
}

# --- and back to nothing -------------------------------------------------------------------------

removal_leaves_the_claim_alone() {
	git -C "$work/fleet" rm --quiet chat.yaml models/tiny.yaml models/tiny.gguf
	push "Serve nothing"
	kubectl wait --for=delete inferenceservice/chat deployment/chat service/chat --timeout=150s
	kubectl wait --for=delete job,pod --selector "$OURS/inference-service=chat" --timeout=150s
	kubectl get persistentvolumeclaim chat-models
	until_true 30 "the claim is guarded" claim_is_guarded
	kubectl delete persistentvolumeclaim chat-models --timeout=60s
	nothing_to_do
}

claim_is_guarded() {
	local code=0
	nothing_to_do >"$work/plan" 2>&1 || code=$?
	cat "$work/plan"
	[ "$code" -eq 3 ] && grep -q Guarded "$work/plan"
}

uninstall() {
	reconcile uninstall "$(cluster_words)"
	kubectl wait --for=delete "namespace/$SYSTEM" --timeout=90s
	if kubectl get customresourcedefinitions,clusterroles,clusterrolebindings,priorityclasses,validatingadmissionpolicies -o name | grep -E "$OURS|fleet-"; then
		die "this was left behind"
	fi
	if ! $has_kubelet; then
		kubectl delete persistentvolume/ci-volume node/ci-node
	fi
}

# --- the end -------------------------------------------------------------------------------------

leave() {
	local code="$1"
	trap - EXIT
	set +e
	if [ "$code" -ne 0 ] && [ -e "$work/kubeconfig" ]; then
		KUBECONFIG="$work/kubeconfig" dump >"$LOGS/cluster-at-the-end.txt" 2>&1
		say "what was there then: $LOGS"
	fi
	if [ -e "$work/has-cluster" ]; then
		delete_cluster
	fi
	finish "$code"
	exit "$code"
}

dump() {
	local pod namespace
	kubectl --request-timeout=20s get nodes,all,events,persistentvolumes,persistentvolumeclaims,endpointslices --all-namespaces -o wide
	kubectl --request-timeout=20s get fleets,fleetnodes,models,inferenceservices --all-namespaces -o yaml
	kubectl --request-timeout=20s describe nodes
	for namespace in default "$SYSTEM" local-path-storage; do
		kubectl --request-timeout=20s -n "$namespace" describe deployments,jobs,pods,persistentvolumeclaims
		for pod in $(kubectl --request-timeout=20s -n "$namespace" get pods -o name); do
			say "--- $namespace $pod"
			kubectl --request-timeout=20s -n "$namespace" logs "$pod" --all-containers --prefix
			kubectl --request-timeout=20s -n "$namespace" logs "$pod" --all-containers --prefix --previous
		done
	done
}

main
