# Without the rule, the second eviction is cancelled.
k delete devicetaintrule "$NS-rule" >/dev/null
cancelled() { [[ -n "$(k get events --field-selector reason=DeviceTaintManagerEviction,involvedObject.name=second -o name)" ]]; }
eventually cancelled
k get pods -o name
