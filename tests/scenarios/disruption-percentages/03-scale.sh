# A budget is a share of what is wanted, not of what is there.
k scale deployment web --replicas=8
eventually all_ready app=web 8
eventually field pdb/half '{.status.expectedPods}' 8
eventually field pdb/half '{.status.disruptionsAllowed}' 4
k scale deployment web --replicas=1
eventually all_ready app=web 1
eventually field pdb/half '{.status.expectedPods}' 1
eventually field pdb/half '{.status.disruptionsAllowed}' 0
