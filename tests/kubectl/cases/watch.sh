# Watching, waiting, selecting, sorting.
(timeout 20 "$kubectl" get pods -w --output-watch-events >"$work/watched" 2>&1 || true) &
watcher=$!
sleep 1
k run one --image=nginx --labels=tier=a >/dev/null
k run two --image=nginx --labels=tier=b >/dev/null
expect 'condition met' k wait pod --all --for=condition=Ready --timeout=30s
expect 'pod/one' k get pods -l 'tier in (a)' -o name
expect 'pod/two' k get pods -l tier!=a -o name
expect 'Running' k get pods --field-selector=metadata.name=one
expect 'one' k get pods --sort-by=.metadata.name --chunk-size=1
expect 'NAME +IMAGE' k get pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[0].image
k delete pod one two --wait >/dev/null
eventually 'DELETED +one' cat "$work/watched"
kill $watcher 2>/dev/null || true
expect 'ADDED +one' cat "$work/watched"
expect 'MODIFIED +one +1/1 +Running' cat "$work/watched"
expect 'Scheduled' k get events
expect 'Started|Scheduled' k events
