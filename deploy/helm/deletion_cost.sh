#!/bin/bash
# deletion_cost.sh RELEASE [NAMESPACE]   Let a Deployment of line nodes that is scaled down lose the pod with the fewest calls.
#
# Writes the calls of each pod into its annotation controller.kubernetes.io/pod-deletion-cost, once. Run it again and again where
# the nodes' HTTP port is reached and kubectl may list and patch pods:
#     export METRICS_TOKEN=…      # a token with the scope read
#     while sleep 15; do deletion_cost.sh voice telephony; done
set -euo pipefail
release=${1:?which release?}
namespace=${2:-default}
: "${METRICS_TOKEN:?a token with the scope read}"

selector="app.kubernetes.io/name=cc-tts,app.kubernetes.io/component=line,app.kubernetes.io/instance=$release"
columns='{range .items[*]}{.metadata.name} {.status.hostIP} {.spec.containers[0].ports[?(@.name=="http")].containerPort}{"\n"}{end}'
kubectl --namespace "$namespace" get pods --selector "$selector" --output "jsonpath=$columns" |
    while read -r pod address port; do
        # The token goes by standard input: whoever lists processes sees arguments.
        series=$(printf 'Authorization: Bearer %s' "$METRICS_TOKEN" |
            curl --fail --silent --max-time 5 --header @- "http://$address:$port/metrics") ||
            { echo "$pod does not say how many calls it has" >&2; continue; }
        calls=$(sed -n 's/^cctts_calls_active \([0-9]*\).*/\1/p' <<< "$series")
        kubectl --namespace "$namespace" annotate pod "$pod" --overwrite "controller.kubernetes.io/pod-deletion-cost=${calls:-0}" \
            < /dev/null > /dev/null
    done
