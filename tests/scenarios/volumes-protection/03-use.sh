# A claim says whether it is used, and stays as long as it is.
unused='{.status.conditions[?(@.type=="Unused")].status}'
eventually field pvc/one '{.status.phase}' Bound
eventually field pvc/one "$unused" True
k create -f - <<MANIFEST
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: "app:v1", volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: one}}]
MANIFEST
k wait --for=condition=Ready pod/user --timeout=30s
eventually field pvc/one "$unused" False
k delete pvc one --wait=false
k delete pv "$NS-one" --wait=false
k delete volumeattributesclass "$NS-gold" --wait=false
sleep 2
k get pvc one -o 'jsonpath={.status.phase} {.metadata.finalizers}{"\n"}'
k get pv "$NS-one" -o 'jsonpath={.status.phase} {.metadata.finalizers}{"\n"}'
k get volumeattributesclass "$NS-gold" -o 'jsonpath={.metadata.finalizers}{"\n"}'
