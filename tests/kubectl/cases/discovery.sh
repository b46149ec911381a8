# What the server says of itself.
expect 'v1.37' k version
expect 'deployments +deploy +apps/v1 +true +Deployment' k api-resources
expect 'apps/v1' k api-versions
expect 'KIND: +Deployment' k explain deployment
expect 'replicas' k explain deployment.spec
expect 'maxSurge' k explain deployment.spec.strategy.rollingUpdate --recursive
expect 'is running' k cluster-info
expect 'ok' k get --raw /readyz
expect 'node' k get nodes
expect 'Ready' k get nodes -o wide
expect 'Allocatable' k describe nodes
expect 'kube-system' k get namespaces
expect 'default' k get serviceaccounts
expect 'kube-root-ca.crt' k get configmaps
expect 'yes' k auth can-i create deployments
expect 'kubernetes-admin|system:masters' k auth whoami
