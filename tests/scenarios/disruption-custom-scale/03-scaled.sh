# What it is scaled to counts at the next change of a pod.
k scale $NS-flocks/geese --replicas=6 >/dev/null
k delete pod goose-1 --wait=true >/dev/null
eventually field pdb/geese '{.status.expectedPods}' 6
eventually field pdb/geese '{.status.desiredHealthy}' 3
eventually field pdb/geese '{.status.currentHealthy}' 2
