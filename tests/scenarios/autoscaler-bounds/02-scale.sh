eventually all_ready app=many 5
eventually all_ready app=few 1
hpa() {
  k apply -f - >/dev/null <<Y
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: $1}
spec:
  minReplicas: $4
  maxReplicas: $5
  scaleTargetRef: {apiVersion: apps/v1, kind: $2, name: $3}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
Y
}
hpa many Deployment many 1 3
hpa few StatefulSet few 3 9
hpa nothing ReplicaSet nothing 1 9
eventually all_ready app=many 3
eventually all_ready app=few 3
reason() { [[ "$(k get hpa "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].reason}")" == "$3" ]]; }
eventually reason nothing ScalingActive ScalingDisabled
eventually reason many ScalingActive FailedGetResourceMetric
eventually reason few ScalingActive FailedGetResourceMetric
k get hpa -o 'jsonpath={range .items[*]}{.metadata.name} {.status.desiredReplicas}{"\n"}{end}'
