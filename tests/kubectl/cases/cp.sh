# Files to a container and back.
k run web --image=nginx >/dev/null
k wait --for=condition=Ready pod/web --timeout=30s >/dev/null
mkdir -p "$work/cp/dir/sub"
echo one >"$work/cp/dir/a" && printf 'two \xff\x00\n' >"$work/cp/dir/sub/b"

expect '' k cp "$work/cp/dir/a" web:/tmp/a
expect '^one$' k exec web -- cat /tmp/a
expect '' k cp "$work/cp/dir" web:/tmp/copy
expect '^one$' k exec web -- cat /tmp/copy/a
expect '^sub$' k exec web -- ls /tmp/copy
expect '' k cp web:/tmp/copy "$work/cp/back"
expect '' diff -r "$work/cp/dir" "$work/cp/back"
expect '' k cp web:/tmp/a "$work/cp/a"
expect '^one$' cat "$work/cp/a"
expect 'No such file or directory' k cp web:/tmp/none "$work/cp/none"
