# A Deployment's common life: made, looked at, scaled, given new images, undone, paused.
expect 'deployment.apps/web created' k create deployment web --image=nginx:1.27 --replicas=3
expect 'successfully rolled out' k rollout status deployment/web --timeout=30s
expect 'web +3/3 +3 +3' k get deployment web
expect 'app=web' k get pods --show-labels
expect '^True True True$' k get pods -l app=web -o jsonpath='{.items[*].status.conditions[?(@.type=="Ready")].status}'
expect 'Replicas: +3 desired \| 3 updated \| 3 total \| 3 available \| 0 unavailable' k describe deployment web
expect 'Scaled up replica set web-[a-z0-9]+ from 0 to 3' k describe deployment web
expect 'Successfully assigned deployment/web-' k describe "$(k get pods -l app=web -o name | head -n 1)"
expect 'image: nginx:1.27' k get deployment web -o yaml
expect 'nginx:1.27' k get deployment web -o wide
expect '^3$' k get deployment web -o jsonpath='{.status.readyReplicas}'
expect 'deployment.apps/web' k get all
expect 'replicaset.apps/web-' k get all
expect 'pod/web-' k get all

expect 'deployment.apps/web scaled' k scale deployment web --replicas=5
eventually '^5$' k get deployment web -o jsonpath='{.status.availableReplicas}'
expect 'condition met' k wait deployment/web --for=condition=Available --timeout=30s

expect 'image updated' k set image deployment/web nginx=nginx:1.28
expect 'successfully rolled out' k rollout status deployment/web --timeout=60s
expect 'REVISION' k rollout history deployment/web
expect 'nginx:1.28' k rollout history deployment/web --revision=2
expect 'rolled back' k rollout undo deployment/web
expect 'successfully rolled out' k rollout status deployment/web --timeout=60s
expect 'nginx:1.27' k get deployment web -o jsonpath='{.spec.template.spec.containers[0].image}'

expect 'paused' k rollout pause deployment/web
expect 'image updated' k set image deployment/web nginx=nginx:1.29
eventually 'DeploymentPaused' k get deployment web -o yaml
eventually 'nginx:1.27' k get rs -o wide
expect 'resumed' k rollout resume deployment/web
expect 'successfully rolled out' k rollout status deployment/web --timeout=60s
expect 'restarted' k rollout restart deployment/web
expect 'successfully rolled out' k rollout status deployment/web --timeout=60s

expect 'deleted' k delete deployment web
eventually 'No resources found' k get pods,rs
