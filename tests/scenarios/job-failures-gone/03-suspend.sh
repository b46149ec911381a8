# One that the Job deletes itself has not failed: with 40 seconds to wait none would come so soon.
k patch job evicted --type=merge -p '{"spec":{"suspend":true}}'
eventually pod_count app=evicted 0
sleep 2
k patch job evicted --type=merge -p '{"spec":{"suspend":false}}'
WITHIN=10 eventually pod_count app=evicted 1
