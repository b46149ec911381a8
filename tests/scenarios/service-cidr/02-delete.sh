WITHIN=240
ready() { [[ "$(k get servicecidr "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" == "$2" ]]; }
k delete servicecidr "$NS-range" "$NS-unused" --wait=false
eventually ready "$NS-range" False
k get servicecidr "$NS-range" -o 'jsonpath={.status.conditions[0].reason}: {.status.conditions[0].message} {.metadata.finalizers}{"\n"}'
eventually gone servicecidr "$NS-unused"
