# Two autoscalers of the same pods. Which of them hears of the other first is a matter of chance: only that is told.
k apply -f - >/dev/null <<Y
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: second}
spec:
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: few}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
Y
reason() { [[ "$(k get hpa "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].reason}")" == "$3" ]]; }
WITHIN=30 eventually reason second ScalingActive AmbiguousSelector && echo ambiguous
WITHIN=30 eventually reason few ScalingActive AmbiguousSelector && echo ambiguous
k get hpa second few -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="ScalingActive")].status}{"\n"}{end}'
k delete hpa second few >/dev/null
