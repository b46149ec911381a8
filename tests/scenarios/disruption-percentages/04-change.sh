k patch pdb none --type=merge -p '{"spec":{"maxUnavailable":"34%"}}' >/dev/null
eventually field pdb/none '{.status.disruptionsAllowed}' 2
k patch pdb quarter --type=merge -p '{"spec":{"maxUnavailable":null,"minAvailable":"100%"}}' >/dev/null
eventually field pdb/quarter '{.status.desiredHealthy}' 3
k get pdb -o 'jsonpath={range .items[*]}{.metadata.name} {.status.expectedPods} {.status.desiredHealthy} {.status.disruptionsAllowed}{"\n"}{end}'
