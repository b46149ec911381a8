# What nodes and pods use, and an autoscaler that goes by it.
cat <<'Y' | k apply -f - >/dev/null
apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  replicas: 1
  selector: {matchLabels: {app: busy}}
  template:
    metadata:
      labels: {app: busy}
      annotations: {sim.evenkeel.dev/cpu-load: 1500m, sim.evenkeel.dev/memory: 100Mi}
    spec: {containers: [{name: app, image: "app:v1", resources: {requests: {cpu: "1"}}}]}
Y
k rollout status deployment/busy >/dev/null
eventually '^busy-[a-z0-9-]+ +1500m +100Mi' k top pods
expect '^busy-[a-z0-9-]+ +app +1500m' k top pods --containers -l app=busy
expect 'No resources found' k top pods -l app=other
expect '^node-0 +[0-9]+m +[0-9]+% +[0-9]+Mi' k top nodes
expect '^busy-.* 1500m +100Mi +15s' k get podmetrics
expect '^NAME +CPU +MEMORY +WINDOW' k get nodemetrics
expect 'v1beta1.metrics.k8s.io +Local +True' k get apiservices v1beta1.metrics.k8s.io
# What a pod uses in its first moments does not count.
sleep 16
expect 'autoscaled' k autoscale deployment busy --min=1 --max=6 --cpu=50%
eventually '^busy +Deployment/busy +cpu: [0-9]+%/50% +1 +6 +3' k get hpa busy
expect 'New size: 3; reason: cpu resource utilization' k describe hpa busy
