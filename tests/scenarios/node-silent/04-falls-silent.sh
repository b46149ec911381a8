for pod in soon late never; do ready $pod; done
export WITHIN=100
eventually field "node/$NS-a" '{.status.conditions[?(@.type=="Ready")].status}' Unknown
k get node "$NS-a" -o 'jsonpath={range .status.conditions[*]}{.type} {.status} {.reason} {.message}{"\n"}{end}' | sort
tainted() { [[ "$(k get node "$NS-a" -o 'jsonpath={range .spec.taints[*]}{.key}:{.effect}{"\n"}{end}' | grep -c unreachable)" == 2 ]]; }
eventually tainted
for pod in soon late never; do
  eventually field pod/$pod '{.status.conditions[?(@.type=="Ready")].status}' False
done
eventually field pod/soon '{.status.conditions[?(@.type=="DisruptionTarget")].reason}' DeletionByTaintManager
going() { [[ -n "$(k get pod soon -o 'jsonpath={.metadata.deletionTimestamp}')" ]]; }
eventually going
k get pods -o 'jsonpath={range .items[*]}{.metadata.name} {.status.conditions[*].type} {.status.conditions[*].status}{"\n"}{end}'
