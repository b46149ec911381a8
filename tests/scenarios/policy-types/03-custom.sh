# The definition's OpenAPI document and discovery are there.
described() { k get --raw /openapi/v3/apis/example.com/v1 | grep -q "\"$NS-tabs\|/$NS-tabs\""; }
eventually k get "$NS-tabs"
eventually described
k create -f - <<Y
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $NS-custom}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [example.com], apiVersions: [v1], resources: [$NS-tabs], operations: [CREATE]}]
  validations:
  - expression: object.spec.replicas > '1'
  - expression: object.spec.either > 1
  - expression: object.spec.raw.x == 1
  - expression: object.spec.embedded.metadata.name == 1
  - expression: object.spec.embedded.spec == 1
  - expression: object.spec.__in__ == 1
  - expression: object.spec.a__dash__b == 1
  - expression: object.spec.map.x == 1
  - expression: object.metadata.labels.x == 1
  - expression: object.kind == 1
Y
eventually field "validatingadmissionpolicy/$NS-custom" '{.status.observedGeneration}' 1
k get validatingadmissionpolicy "$NS-custom" -o 'jsonpath={.status.typeChecking}{"\n"}'
k delete crd "$NS-tabs.example.com"
