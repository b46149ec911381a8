k apply -f - <<Y >/dev/null
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: geese}
spec:
  maxReplicas: 5
  scaleTargetRef: {apiVersion: example.com/v1, kind: Flock, name: geese}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: stone}
spec:
  maxReplicas: 5
  scaleTargetRef: {apiVersion: example.com/v1, kind: Stone, name: pebble}
Y
eventually field $NS-flocks/geese '{.spec.birds}' 5
reason() { [[ "$(k get hpa "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].reason}")" == "$3" ]]; }
eventually reason stone AbleToScale FailedGetScale
eventually reason geese ScalingActive FailedGetResourceMetric
