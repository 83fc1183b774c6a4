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

{{- define "cc-tts.config" -}}
{{- /* A string that is a value may speak of a token. */}}
{{- $keys := regexReplaceAll "=\\s*(\"(?:\\\\.|[^\"\\\\\\n])*\"|'[^'\\n]*')" .Values.config "=" -}}
{{- if regexMatch "(?m)^[^#\\n]*\\b(tokens?|password|private_key_password|users)[\"']?\\s*=" $keys -}}
{{- fail "config: tokens, users and passwords belong into a Secret: secret.existing or envFromSecrets" -}}
{{- end -}}
{{ .Values.config }}
{{- end }}

{{- define "cc-tts.resources" -}}
cpu: {{ .cpu }}
memory: {{ .memory }}
{{- if .gpus }}
{{ .gpuResource }}: {{ .gpus }}
{{- end }}
{{- end }}

{{- define "cc-tts.checksums" -}}
checksum/config: {{ include "cc-tts.config" . | sha256sum }}
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

{{- /* What the values of one kind of pod add to its spec: those of line nodes, .workers or .pool. */}}
{{- define "cc-tts.placement" -}}
{{- $values := . -}}
{{- range list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "initContainers" }}
{{- $name := . -}}
{{- with index $values $name }}
{{ $name }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- range list "runtimeClassName" "priorityClassName" "serviceAccountName" }}
{{- $name := . -}}
{{- with index $values $name }}
{{ $name }}: {{ . }}
{{- end }}
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
from:
  {{- range . }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
{{- end -}}
{{- end }}
