# Each failure doubles the time to the next pod, though nothing is left of those that failed.
failed=0
for least in 7 15; do
  eventually pod_count app=evicted 1
  pod=$(first_pod app=evicted)
  began=$SECONDS
  finish "$pod" Failed
  eventually field job/evicted '{.status.failed}' $((++failed))
  k delete pod "$pod"
  eventually pod_count app=evicted 1
  ((SECONDS - began >= least)) && echo "$least seconds and more"
done
