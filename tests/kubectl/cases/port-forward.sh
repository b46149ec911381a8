# Ports of containers: on the container's ports HTTP is answered, through WebSocket and through SPDY.
k run web --image=nginx >/dev/null
k run loop --image=busybox -- sleep 1000 >/dev/null
k create deployment shop --image=example.com/shop --port=8080 --replicas=2 >/dev/null
k expose deployment shop --port=80 --target-port=8080 >/dev/null
k wait --for=condition=Ready pod/web pod/loop --timeout=30s >/dev/null
k wait --for=condition=Available deployment/shop --timeout=30s >/dev/null

# forward TARGET PORT: forwards a local port until `unforward`; sets `port` to it.
forward() {
    k port-forward "$1" ":$2" >"$work/forward.log" 2>&1 &
    forwarder=$!
    for _ in $(seq 300); do
        port=$(sed -nE 's/^Forwarding from 127.0.0.1:([0-9]+) .*/\1/p' "$work/forward.log")
        [ -n "$port" ] && return
        sleep 0.1
    done
}
unforward() { kill "$forwarder" 2>/dev/null; wait "$forwarder" 2>/dev/null; true; }
# ask PATH: a request to the forwarded port, and its whole answer.
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return
    printf 'GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' "$1" >&3
    cat <&3
    exec 3>&-
}

for websockets in true false; do
    export KUBECTL_PORT_FORWARD_WEBSOCKETS=$websockets
    forward pod/web 80
    expect '^HTTP/1.1 200 OK' ask /
    expect '^Pod: port-forward/web' ask /
    expect '^GET /a\?b=c HTTP/1.1' ask '/a?b=c'
    # Several connections at once, over the one of kubectl.
    asking=()
    for n in 1 2 3 4 5 6 7 8; do (ask "/$n") >"$work/answer-$n" & asking+=($!); done
    wait "${asking[@]}"
    expect '^8$' sh -c "cat '$work'/answer-* | grep -c '^GET /[1-8] HTTP'"
    unforward

    forward deployment/shop 8080
    expect '^Pod: port-forward/shop-' ask /
    unforward
    forward service/shop 80
    expect '^Address: .*:8080' ask /
    unforward

    forward pod/loop 8080
    # In a shell of its own: kubectl may close the connection before the request is written, and that signal ends the shell.
    (ask /) >/dev/null 2>&1
    eventually 'error forwarding port 8080 to pod loop, uid .*: dial tcp4 127.0.0.1:8080: connect: connection refused' cat "$work/forward.log"
    unforward
done
unset KUBECTL_PORT_FORWARD_WEBSOCKETS

# nginx serves the files of its folder.
k exec web -- sh -c 'mkdir -p /usr/share/nginx/html && echo "<p>mine</p>" > /usr/share/nginx/html/index.html'
forward pod/web 80
expect '^<p>mine</p>$' ask /
unforward
refuse 'pods "none" not found' k port-forward pod/none :80
