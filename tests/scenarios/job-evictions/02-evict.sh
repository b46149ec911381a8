# Each pod that is deleted has failed, and doubles the time to the next, though nothing of it is left.
for least in 7 15; do
  eventually pod_count app=evicted 1
  pod=$(first_pod app=evicted)
  k delete pod "$pod"
  began=$SECONDS
  eventually pod_count app=evicted 1
  ((SECONDS - began >= least)) && echo "$least seconds and more"
done
