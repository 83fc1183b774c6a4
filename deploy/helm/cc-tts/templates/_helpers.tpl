{{- define "cc-tts.name" -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- end }}

{{- /* KubeRay makes a Service of this and "-head-svc", and cuts its name at 50 characters. */}}
{{- define "cc-tts.ray" -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}-ray
{{- end }}

{{- /* Of (list $ COMPONENT): line, worker, pool or ray. */}}
{{- define "cc-tts.selector" -}}
app.kubernetes.io/name: cc-tts
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{- /* Of the pods of the Ray cluster: KubeRay selects its own by app.kubernetes.io/name. */}}
{{- define "cc-tts.raySelector" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: ray
{{- end }}

{{- define "cc-tts.labels" -}}
{{- $ := first . -}}
{{ include "cc-tts.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ $.Chart.Name }}-{{ $.Chart.Version }}
{{- end }}

{{- define "cc-tts.secret" -}}
{{- .Values.secret.existing | default (include "cc-tts.name" .) -}}
{{- end }}

{{- define "cc-tts.configMap" -}}
{{- .Values.existingConfigMap | default (include "cc-tts.name" .) -}}
{{- end }}

{{- /* Of (list $ IMAGE SUFFIX): the values tag and digest, and what a tag gets that is not set. */}}
{{- define "cc-tts.image" -}}
{{- $ := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $.Values.image.repository }}@{{ $image.digest }}
{{- else if $image.tag -}}
{{ $.Values.image.repository }}:{{ $image.tag }}
{{- else -}}
{{ $.Values.image.repository }}:{{ $.Chart.AppVersion }}{{ index . 2 }}
{{- end -}}
{{- end }}

{{- define "cc-tts.workerImage" -}}
{{- $suffix := ternary "-gpu" (ternary "-ray" "" (eq .Values.workers.kind "RayCluster")) (gt (int .Values.workers.resources.gpus) 0) -}}
{{ include "cc-tts.image" (list . .Values.workers.image $suffix) }}
{{- end }}

{{- /* `config` as JSON, {} where a ConfigMap is in its place. The parser's own words may quote a secret, so only the line is told. */}}
{{- define "cc-tts.parsedConfig" -}}
{{- $parsed := ternary dict (fromToml .Values.config) (not (empty .Values.existingConfigMap)) -}}
{{- with $parsed.Error -}}
{{- fail (printf "config: not valid TOML: %s" (toString . | regexFind "line [0-9]+")) -}}
{{- end -}}
{{ toJson $parsed }}
{{- end }}

{{- /* Says something if a key holds a secret, at any depth: a misplaced one must not reach a ConfigMap either. */}}
{{- define "cc-tts.hasSecret" -}}
{{- if kindIs "map" . -}}
{{- range $key, $value := . -}}
{{- $holds := and $value (or (kindIs "string" $value) (kindIs "slice" $value)) -}}
{{- if and $holds (regexMatch "^(tokens?|users|(.+_)?password)$" $key) }}yes{{ else }}{{ include "cc-tts.hasSecret" $value }}{{ end -}}
{{- end -}}
{{- else if kindIs "slice" . -}}
{{- range . }}{{ include "cc-tts.hasSecret" . }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "cc-tts.config" -}}
{{- if include "cc-tts.parsedConfig" . | fromJson | include "cc-tts.hasSecret" -}}
{{- fail "config: tokens, users and passwords belong into a Secret: secret.existing or envFromSecrets" -}}
{{- end -}}
{{ .Values.config }}
{{- end }}

{{- /* As JSON, like the ports below. */}}
{{- define "cc-tts.transports" -}}
{{- $parsed := include "cc-tts.parsedConfig" . | fromJson -}}
{{ .Values.sip.transports | default (dig "sip" "transports" (list "udp" "tcp") $parsed) | toJson }}
{{- end }}

{{- /* SIP's ports on the node. In-dialog requests go to the own ports of user agents if there is more than one. */}}
{{- define "cc-tts.sipPorts" -}}
{{- $parsed := include "cc-tts.parsedConfig" . | fromJson -}}
{{- $transports := include "cc-tts.transports" . | fromJsonArray -}}
{{- $ports := list -}}
{{- range list (list "udp" .Values.sip.port "UDP") (list "tcp" .Values.sip.port "TCP") (list "tls" .Values.sip.tlsPort "TCP") -}}
{{- if has (first .) $transports -}}
{{- $ports = append $ports (dict "name" (printf "sip-%s" (first .)) "port" (index . 1 | int) "protocol" (last .)) -}}
{{- end -}}
{{- end -}}
{{- $processes := dig "ua" "processes" 1 $parsed | int -}}
{{- if gt $processes 1 -}}
{{- range until $processes -}}
{{- $port := dig "ua" "first_port" 5070 $parsed | int | add . -}}
{{- $ports = append $ports (dict "name" (printf "sip-ua-%d" .) "port" $port "protocol" "UDP") -}}
{{- end -}}
{{- end -}}
{{ toJson $ports }}
{{- end }}

{{- define "cc-tts.resources" -}}
cpu: {{ .cpu }}
memory: {{ .memory }}
{{- if .gpus }}
{{ .gpuResource }}: {{ .gpus }}
{{- end }}
{{- end }}

{{- define "cc-tts.checksums" -}}
{{- if not .Values.existingConfigMap }}
checksum/config: {{ include "cc-tts.config" . | sha256sum }}
{{- end }}
{{- if not .Values.secret.existing }}
checksum/secret: {{ toJson .Values.secret | sha256sum }}
{{- end }}
{{- end }}

{{- /* Of every pod. */}}
{{- define "cc-tts.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* The values of (list $ COMPONENT) as JSON: line, worker or pool. */}}
{{- define "cc-tts.valuesOf" -}}
{{- $ := first . -}}
{{- get (dict "line" $.Values "worker" $.Values.workers "pool" $.Values.pool) (last .) | toJson -}}
{{- end }}

{{- /* The name of the ServiceAccount of (list $ COMPONENT); empty: the namespace's default. */}}
{{- define "cc-tts.serviceAccount" -}}
{{- $account := (include "cc-tts.valuesOf" . | fromJson).serviceAccount -}}
{{- $own := ternary (include "cc-tts.name" (first .)) (printf "%s-%s" (include "cc-tts.name" (first .)) (last .)) (eq (last .) "line") -}}
{{ $account.name | default (ternary $own "" $account.create) }}
{{- end }}

{{- /* What the values of (list $ COMPONENT) add to the spec of its pods. */}}
{{- define "cc-tts.placement" -}}
{{- $values := include "cc-tts.valuesOf" . | fromJson -}}
{{- range list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "initContainers" }}
{{- $name := . -}}
{{- with index $values $name }}
{{ $name }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- range list "runtimeClassName" "priorityClassName" }}
{{- $name := . -}}
{{- with index $values $name }}
{{ $name }}: {{ . }}
{{- end }}
{{- end }}
{{- with include "cc-tts.serviceAccount" . }}
serviceAccountName: {{ . }}
{{- end }}
{{- end }}

{{- /* Of every container. */}}
{{- define "cc-tts.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* [remote], of whoever speaks to workers. */}}
{{- define "cc-tts.remoteEnv" -}}
- {name: CC_TTS_REMOTE__TOKEN, valueFrom: {secretKeyRef: {name: {{ include "cc-tts.secret" . }}, key: remote-token}}}
{{- if .Values.workers.tlsSecret }}
- {name: CC_TTS_REMOTE__CA_FILE, value: /etc/cc-tts-tls/ca.crt}
- {name: CC_TTS_REMOTE__CERTIFICATE_FILE, value: /etc/cc-tts-tls/tls.crt}
- {name: CC_TTS_REMOTE__PRIVATE_KEY_FILE, value: /etc/cc-tts-tls/tls.key}
{{- end }}
{{- end }}

{{- define "cc-tts.rayEnv" -}}
- {name: RAY_AUTH_MODE, value: token}
- {name: RAY_AUTH_TOKEN, valueFrom: {secretKeyRef: {name: {{ include "cc-tts.secret" . }}, key: ray-auth-token}}}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
{{- end }}

{{- define "cc-tts.hasRemote" -}}
{{- if or .Values.workers.kind .Values.pool.enabled }}yes{{ end -}}
{{- end }}

{{- /* tts.workers of the line nodes. */}}
{{- define "cc-tts.workers" -}}
{{- $found := list -}}
{{- if eq .Values.workers.kind "Deployment" -}}
{{- $found = append $found (printf "dns:%s-workers.%s.svc:%d" (include "cc-tts.name" .) .Release.Namespace (int .Values.workers.port)) -}}
{{- end -}}
{{- if .Values.pool.enabled -}}
{{- $found = append $found (printf "pool:%s" (include "cc-tts.poolAddress" .)) -}}
{{- end -}}
{{ $found | toJson }}
{{- end }}

{{- define "cc-tts.poolAddress" -}}
{{ include "cc-tts.name" . }}-pool.{{ .Release.Namespace }}.svc:{{ .Values.pool.port }}
{{- end }}

{{- /* Of networks in a rule of a NetworkPolicy; without any it is for every one. */}}
{{- define "cc-tts.from" -}}
{{- with . -}}
from: {{- include "cc-tts.networks" . | nindent 2 }}
{{- end -}}
{{- end }}

{{- define "cc-tts.to" -}}
{{- with . -}}
to: {{- include "cc-tts.networks" . | nindent 2 }}
{{- end -}}
{{- end }}

{{- define "cc-tts.networks" -}}
{{- range . }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "cc-tts.policyTypes" -}}
{{ ternary "[Ingress, Egress]" "[Ingress]" .Values.networkPolicy.egress.enabled }}
{{- end }}

{{- /* What every pod may send to. DNS at any address: that of a cache on the node is none of a pod. */}}
{{- define "cc-tts.egress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- with .Values.networkPolicy.egress.extra }}
{{ toYaml . }}
{{- end }}
{{- end }}
