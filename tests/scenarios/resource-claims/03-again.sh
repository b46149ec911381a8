claim() { k get pod "$1" -o 'jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}'; }
told() { [[ -n "$(claim "$1")" && "$(claim "$1")" != "${2:-}" ]]; }
long=a-pod-with-a-name-that-is-too-long-for-what-is-made-from-it
eventually told early; eventually told "$long"
first=$(claim early)
k delete resourceclaim "$first" >/dev/null
eventually told early "$first"
k get resourceclaims -o 'jsonpath={range .items[*]}{.metadata.generateName} {.metadata.ownerReferences[0].name}{"\n"}{end}'
