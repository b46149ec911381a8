# Requests that were made once: a node's, with and without names, and a user's.
NODE=LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIdU1JR1VBZ0VBTURJeEZUQVRCZ05WQkFvTURITjVjM1JsYlRwdWIyUmxjekVaTUJjR0ExVUVBd3dRYzNsegpkR1Z0T201dlpHVTZaR1Z0YnpCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQk0xRWdLWkZKMDZ5ClNwMjdtMzRmTTlhTDBJQ0Nrajd2aEVVaEFWa0VETHRqNytSaVErOHlNdEwwUnhiUHhtUk9GWldabTl5N1dZd1IKY21Pb3BvcXRHam1nQURBS0JnZ3Foa2pPUFFRREFnTkpBREJHQWlFQTZ5VjNvSjRzdWJLZUtCdHBnRVVGRW5YNAp1MExGK3VESnJmVFhUUk1zUkhjQ0lRRG4vRzVaK1lsVGVXeGh6UXB2V0VnbnJHVXduU1ppZXM5RVVWYXI4Qmt0CmhRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==
NAMED=LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkdUQ0J3UUlCQURBeU1SVXdFd1lEVlFRS0RBeHplWE4wWlcwNmJtOWtaWE14R1RBWEJnTlZCQU1NRUhONQpjM1JsYlRwdWIyUmxPbVJsYlc4d1dUQVRCZ2NxaGtqT1BRSUJCZ2dxaGtqT1BRTUJCd05DQUFUTlJJQ21SU2RPCnNrcWR1NXQrSHpQV2k5Q0FncEkrNzRSRklRRlpCQXk3WSsva1lrUHZNakxTOUVjV3o4WmtUaFdWbVp2Y3UxbU0KRVhKanFLYUtyUm81b0Mwd0t3WUpLb1pJaHZjTkFRa09NUjR3SERBYUJnTlZIUkVFRXpBUmdnbGtaVzF2TG5SbApjM1NIQkFvQUFBa3dDZ1lJS29aSXpqMEVBd0lEUndBd1JBSWdYK1FDREx2eUhFQk1lTXlHRkd3aFIzL2pBZWV2Cnh6VDhNbDhTeExXNTBCOENJR2NBdVlNeSsrRXkzaFIyQXdaK2tWSUYxTmROdE5MSm1uaCtNV0Y5empENgotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K
USER=LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIY01JR0RBZ0VBTUNFeERUQUxCZ05WQkFvTUJIUmxZVzB4RURBT0JnTlZCQU1NQjNOdmJXVnZibVV3V1RBVApCZ2NxaGtqT1BRSUJCZ2dxaGtqT1BRTUJCd05DQUFUTlJJQ21SU2RPc2txZHU1dCtIelBXaTlDQWdwSSs3NFJGCklRRlpCQXk3WSsva1lrUHZNakxTOUVjV3o4WmtUaFdWbVp2Y3UxbU1FWEpqcUthS3JSbzVvQUF3Q2dZSUtvWkkKemowRUF3SURTQUF3UlFJaEFPUDNHcGNCa0JvZEgwUmlvK2tpRG0vK2Q3blcrc0ltclNzdlhtMGt5bHo5QWlCRwp1a0xaeTlYcDZVOVJ5VlZ0cGtZSXJMUHk0V2JKL0ZYY2xtUWs4OTNobEE9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K
request() {  # NAME USER SIGNER REQUEST USAGES
  k create --as="$2" -f - <<CSR
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: $NS-$1}
spec: {signerName: kubernetes.io/$3, request: $4, usages: [$5], expirationSeconds: 3600}
CSR
}
request own system:node:demo kube-apiserver-client-kubelet "$NODE" "digital signature, client auth"
request any "$NS-boot" kube-apiserver-client-kubelet "$NODE" "digital signature, key encipherment, client auth"
request named "$NS-boot" kube-apiserver-client-kubelet "$NAMED" "digital signature, client auth"
request user "$NS-boot" kube-apiserver-client-kubelet "$USER" "digital signature, client auth"
request usages "$NS-boot" kube-apiserver-client-kubelet "$NODE" "digital signature, client auth, server auth"
request signer "$NS-boot" kube-apiserver-client "$NODE" "client auth"
request late "$NS-late" kube-apiserver-client-kubelet "$NODE" "digital signature, client auth"
issued() { [[ -n "$(k get csr "$1" -o 'jsonpath={.status.certificate}')" ]]; }
for name in own any; do eventually issued "$NS-$name"; done
