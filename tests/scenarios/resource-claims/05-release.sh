finish early Succeeded
k delete pod bound --grace-period=0 --force >/dev/null 2>&1
released() { [[ -z "$(k get resourceclaim shared -o 'jsonpath={.status}{.metadata.finalizers}')" || "$(k get resourceclaim shared -o 'jsonpath={.status.allocation}')" == "" ]]; }
eventually released
left() { [[ "$(k get resourceclaims -o name | wc -l)" == 2 ]]; }
eventually left
