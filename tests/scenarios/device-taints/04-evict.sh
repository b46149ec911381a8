# The rule evicts the pod that does not tolerate it, and the other one is pending.
reason() { field "devicetaintrule/$NS-rule" '{.status.conditions[?(@.type=="EvictionInProgress")].reason}' "$1"; }
eventually reason NoEffect
k patch devicetaintrule "$NS-rule" --type=merge -p '{"spec":{"taint":{"effect":"NoExecute"}}}' >/dev/null
eventually gone pod first
eventually reason PodsPendingEviction
message() { k get devicetaintrule "$NS-rule" -o 'jsonpath={.status.conditions[0].message}'; }
evicted() { [[ "$(message)" == *"1 pod evicted since starting the controller." ]]; }
eventually evicted
message; echo
