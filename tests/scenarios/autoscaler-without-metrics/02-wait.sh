reason() { [[ "$(k get hpa "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].reason}")" == "$3" ]]; }
eventually reason every-source ScalingActive FailedGetResourceMetric
for name in no-such-object no-such-kind no-scale version-1; do
  eventually reason "$name" AbleToScale FailedGetScale
done
eventually field hpa/every-source '{.status.currentReplicas}' 2
# A second look, as nothing has changed.
sleep 16
k get deployment web -o 'jsonpath={.spec.replicas}{"\n"}'
