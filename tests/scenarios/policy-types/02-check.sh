status() { k get validatingadmissionpolicy "$NS-$1" -o "jsonpath={.status.observedGeneration} {.status.typeChecking}{'\n'}"; }
checked() { field "validatingadmissionpolicy/$NS-$1" '{.status.observedGeneration}' "$2"; }
for policy in deployments several any variables; do
  eventually checked $policy 1
  status $policy
done
# A change of the spec is checked anew, one of the labels is not.
k label validatingadmissionpolicy "$NS-any" a=b
k patch validatingadmissionpolicy "$NS-any" --type=merge -p '{"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"],"operations":["CREATE"]}]}}}'
eventually checked any 2
status any
k patch validatingadmissionpolicy "$NS-any" --type=merge -p '{"spec":{"validations":[{"expression":"true"}]}}'
eventually checked any 3
status any
