# Configuration applied from files: client side, server side, with changes, conflicts, and fields taken away.
cat >"$work/config.yaml" <<YAML
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {tier: front}
data:
  colour: blue
  size: large
YAML
expect 'created' k apply -f "$work/config.yaml"
expect 'unchanged' k apply -f "$work/config.yaml"
sed -i '/size:/d; s/blue/green/' "$work/config.yaml"
refuse 'colour: green' k diff -f "$work/config.yaml"
expect 'configured' k apply -f "$work/config.yaml"
expect '^\{"colour":"green"\}$' k get configmap settings -o jsonpath='{.data}'
expect 'green' k get configmap settings -o yaml

cat >"$work/deploy.yaml" <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  replicas: 2
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      containers:
      - {name: main, image: "example.com/app:1"}
YAML
expect 'serverside-applied' k apply --server-side -f "$work/deploy.yaml"
expect 'serverside-applied' k apply --server-side -f "$work/deploy.yaml"
expect 'successfully rolled out' k rollout status deployment/app --timeout=30s
expect 'kubectl' k get deployment app -o jsonpath='{.metadata.managedFields[*].manager}'
expect 'scaled' k scale deployment app --replicas=3
sed -i 's/replicas: 2/replicas: 4/' "$work/deploy.yaml"
refuse 'conflict with "kubectl"' k apply --server-side --field-manager=other -f "$work/deploy.yaml"
expect 'serverside-applied' k apply --server-side --force-conflicts -f "$work/deploy.yaml"
expect '^4$' k get deployment app -o jsonpath='{.spec.replicas}'
expect 'dry run' k apply --server-side --dry-run=server -f "$work/deploy.yaml"
sed -i 's/replicas: 4/replicas: many/' "$work/deploy.yaml"
refuse 'replicas' k apply -f "$work/deploy.yaml"
expect 'created' k apply -k "$here/kustomize"
expect 'deleted' k delete -k "$here/kustomize"
