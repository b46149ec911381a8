# What is allocated is reserved for a pod that is on a node without the scheduler.
k create -f - <<POD
apiVersion: v1
kind: Pod
metadata: {name: bound}
spec:
  nodeName: reserved-0
  schedulerName: nobody
  containers: [{name: app, image: "app:v1", resources: {claims: [{name: there}]}}]
  resourceClaims: [{name: there, resourceClaimName: shared}]
POD
k patch resourceclaim shared --type=merge -p '{"metadata":{"finalizers":["resource.kubernetes.io/delete-protection"]}}'
k patch resourceclaim shared --subresource=status --type=merge -p '{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"example.test","pool":"p","device":"d"}]}}}}'
eventually field resourceclaim/shared '{.status.reservedFor[0].name}' bound
k get resourceclaim shared -o 'jsonpath={.status.reservedFor[*].name}{"\n"}'
