# Proxies of pods, Services and nodes.
k run web --image=nginx >/dev/null
k create deployment shop --image=example.com/shop --port=8080 >/dev/null
k expose deployment shop --port=80 --target-port=8080 >/dev/null
k wait --for=condition=Ready pod/web --timeout=30s >/dev/null
k wait --for=condition=Available deployment/shop --timeout=30s >/dev/null
base=/api/v1/namespaces/proxy

expect '^GET /a/b\?c=d HTTP/1.1$' k get --raw "$base/pods/web:80/proxy/a/b?c=d"
expect '^Pod: proxy/shop-' k get --raw "$base/pods/$(k get pods -l app=shop -o 'jsonpath={.items[0].metadata.name}')/proxy/"
eventually '^Pod: proxy/shop-' k get --raw "$base/services/shop:80/proxy/"
refuse 'no endpoints available for service "none"' k get --raw "$base/services/none/proxy/"
refuse 'no service port 81 found for service "shop"' k get --raw "$base/services/shop:81/proxy/"
refuse 'dial tcp 10\..*:81: connect: connection refused' k get --raw "$base/pods/web:81/proxy/"

node=$(k get pod web -o 'jsonpath={.spec.nodeName}')
expect '^ok$' k get --raw "/api/v1/nodes/$node/proxy/healthz"
expect '"podRef":\{"name":"web","namespace":"proxy"' k get --raw "/api/v1/nodes/$node/proxy/stats/summary"
expect 'pod_memory_working_set_bytes\{namespace="proxy",pod="web"\} [1-9]' k get --raw "/api/v1/nodes/$node/proxy/metrics/resource"
expect '"kind":"PodList".*"name":"web"' k get --raw "/api/v1/nodes/$node:10250/proxy/pods"
expect '"kind":"KubeletConfiguration"' k get --raw "/api/v1/nodes/$node/proxy/configz"

# Through kubectl proxy, as a browser does it: a redirect, and links that lead through the proxy.
k exec web -- sh -c 'mkdir -p /usr/share/nginx/html && echo "<a href=\"/next\">n</a>" > /usr/share/nginx/html/index.html'
k proxy --port=0 >"$work/proxy.log" 2>&1 &
proxying=$!
for _ in $(seq 300); do grep -q '^Starting to serve' "$work/proxy.log" && break; sleep 0.1; done
port=$(sed -nE 's/^Starting to serve on 127.0.0.1:([0-9]+)$/\1/p' "$work/proxy.log")
# ask METHOD PATH: a request to kubectl proxy, and its whole answer.
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" "$2" >&3
    cat <&3
    exec 3>&-
}
expect "^Location: $base/pods/web/proxy/" ask GET "$base/pods/web/proxy"
expect "^<a href=\"$base/pods/web/proxy/next\">n</a>" ask GET "$base/pods/web/proxy/"
expect '^DELETE /x HTTP/1.1' ask DELETE "$base/pods/web/proxy/x"
expect '^OPTIONS /x HTTP/1.1' ask OPTIONS "$base/pods/web/proxy/x"
kill "$proxying" && wait "$proxying" 2>/dev/null
true
