{{/* Name of a program's objects: the release's, if it has the chart's name in it, and the part. */}}
{{- define "evenkeel.name" -}}
{{- $base := ternary .root.Release.Name (printf "%s-%s" .root.Release.Name .root.Chart.Name) (contains .root.Chart.Name .root.Release.Name) -}}
{{- printf "%s-%s" (trunc 40 $base | trimSuffix "-") .part -}}
{{- end -}}

{{- define "evenkeel.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "evenkeel.labels" -}}
{{ include "evenkeel.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Name of a program's lease. */}}
{{- define "evenkeel.lease" -}}
{{- .values.leaderElection.resourceName | default (include "evenkeel.name" .) -}}
{{- end -}}

{{- define "evenkeel.image" -}}
{{- $image := .root.Values.image -}}
{{- if .values.digest -}}
{{ $image.registry }}/{{ .program }}@{{ .values.digest }}
{{- else -}}
{{ $image.registry }}/{{ .program }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Service account, and the permissions that both programs need: upstream's role for the program, the client CA of the
cluster for the secure port, and one lease of its own. */}}
{{- define "evenkeel.permissions" -}}
{{- $name := include "evenkeel.name" . -}}
{{- $labels := include "evenkeel.labels" . -}}
{{- $namespace := .root.Release.Namespace -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}-leader-election
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
rules:
# A create has no name that a rule could restrict.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "evenkeel.lease" . }}]
  verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}-leader-election
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}-leader-election
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}-authentication-reader
  namespace: kube-system
  labels:
    {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: extension-apiserver-authentication-reader
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $namespace }}
{{- range .roles }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}-{{ . | replace "system:" "" }}
  labels:
    {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ . }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $namespace }}
{{- end }}
{{- end -}}

{{/* What both programs have besides their Deployment and permissions: a Service of the secure port, a budget, and a
ServiceMonitor. */}}
{{- define "evenkeel.around" -}}
{{- $name := include "evenkeel.name" . -}}
{{- $labels := include "evenkeel.labels" . -}}
{{- $selector := include "evenkeel.selector" . -}}
{{- $root := .root -}}
{{- $namespace := $root.Release.Namespace -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  clusterIP: None
  selector:
    {{- $selector | nindent 4 }}
  ports:
  - name: https
    port: {{ .port }}
    targetPort: https
{{- if $root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  # With one replica a drain may evict it: pods and controllers wait until it runs elsewhere.
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
{{- end }}
{{- with $root.Values.monitoring.serviceMonitor }}
{{- if .enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  endpoints:
  {{- range $path := list "/metrics" "/metrics/slis" }}
  - port: https
    path: {{ $path }}
    scheme: https
    interval: {{ $root.Values.monitoring.serviceMonitor.interval }}
    bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
    # The programs make their own certificate when they start.
    tlsConfig:
      insecureSkipVerify: true
    relabelings:
    # The rules and dashboards for upstream's program select this job.
    - targetLabel: job
      replacement: {{ $.program }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Pod of a program, but for its volumes. */}}
{{- define "evenkeel.pod" -}}
serviceAccountName: {{ include "evenkeel.name" . }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65534
  runAsGroup: 65534
  seccompProfile:
    type: RuntimeDefault
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "evenkeel.selector" . | nindent 12 }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* Image, port, probes, resources and security context of a program's container. */}}
{{- define "evenkeel.container" -}}
image: {{ include "evenkeel.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
ports:
- name: https
  containerPort: {{ .port }}
startupProbe:
  httpGet: { path: /healthz, port: https, scheme: HTTPS }
  failureThreshold: 24
  periodSeconds: 5
livenessProbe:
  httpGet: { path: /healthz, port: https, scheme: HTTPS }
  failureThreshold: 8
  periodSeconds: 10
  timeoutSeconds: 15
readinessProbe:
  httpGet: { path: {{ .ready }}, port: https, scheme: HTTPS }
  periodSeconds: 5
  timeoutSeconds: 15
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}
