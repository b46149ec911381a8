# Pods with allocated devices, on a node without the scheduler. The second one tolerates taints for long.
for name in first second; do
  device=d0; tolerations='[]'
  if [[ $name == second ]]; then
    device=d1; tolerations='[{"operator":"Exists","effect":"NoExecute","tolerationSeconds":3600}]'
  fi
  k patch resourceclaim $name --subresource=status --type=merge -p "{\"status\":{\"allocation\":{\"devices\":{\"results\":[
    {\"request\":\"r\",\"driver\":\"$NS.example.test\",\"pool\":\"$NS\",\"device\":\"$device\",\"tolerations\":$tolerations}]}}}}" >/dev/null
  k create -f - >/dev/null <<POD
apiVersion: v1
kind: Pod
metadata: {name: $name}
spec:
  nodeName: reserved-0
  schedulerName: nobody
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "app:v1", resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: $name}]
POD
  eventually field resourceclaim/$name '{.status.reservedFor[0].name}' $name
done
