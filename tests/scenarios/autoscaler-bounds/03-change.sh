# A change of the spec is looked at at once, in less time than a period.
reason() { [[ "$(k get hpa "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].reason}")" == "$3" ]]; }
k patch hpa many --type=merge -p '{"spec":{"maxReplicas":2}}' >/dev/null
WITHIN=10 eventually field deployment/many '{.spec.replicas}' 2
eventually all_ready app=many 2
k scale rs nothing --replicas=1 >/dev/null
eventually all_ready app=nothing 1
WITHIN=30 eventually reason nothing ScalingActive FailedGetResourceMetric
