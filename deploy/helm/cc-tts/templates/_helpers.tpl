{{- define "cc-tts.name" -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- end }}

{{- define "cc-tts.selector" -}}
app.kubernetes.io/name: cc-tts
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cc-tts.labels" -}}
{{ include "cc-tts.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "cc-tts.secret" -}}
{{- .Values.secret.existing | default (include "cc-tts.name" .) -}}
{{- end }}

{{- define "cc-tts.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "cc-tts.config" -}}
{{- if regexMatch "(?m)^[^#\\n]*\\b(tokens?|password|private_key_password|users)[\"']?\\s*=" .Values.config -}}
{{- fail "config: tokens, users and passwords belong into a Secret: secret.existing or envFromSecrets" -}}
{{- end -}}
{{ .Values.config }}
{{- end }}

{{- define "cc-tts.resources" -}}
cpu: {{ .cpu }}
memory: {{ .memory }}
{{- if .gpus }}
nvidia.com/gpu: {{ .gpus }}
{{- end }}
{{- end }}
