k create -f - <<MANIFEST
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: $NS-late, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.test/late
volumeBindingMode: WaitForFirstConsumer
MANIFEST
eventually field pvc/nameless '{.spec.storageClassName}' "$NS-late"
k annotate storageclass "$NS-late" storageclass.kubernetes.io/is-default-class-
k get pvc none -o 'jsonpath=[{.spec.storageClassName}]{"\n"}'
sleep 2
k get pvc nameless -o 'jsonpath={.status.phase}{"\n"}'
