k apply -f - <<Y >/dev/null
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $NS-flocks.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: $NS-flocks, singular: $NS-flock, kind: Flock, listKind: FlockList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {birds: {type: integer}}}
          status: {type: object, properties: {birds: {type: integer}, selector: {type: string}}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.birds, statusReplicasPath: .status.birds, labelSelectorPath: .status.selector}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $NS-stones.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: $NS-stones, singular: $NS-stone, kind: Stone, listKind: StoneList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
Y
k wait --for=condition=Established crd/$NS-flocks.example.com crd/$NS-stones.example.com >/dev/null
# What discovery told is taken for true for half a minute.
sleep 31
