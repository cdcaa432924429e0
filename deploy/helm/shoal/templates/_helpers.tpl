{{/*
The release has several programs. The templates below take one of them as a dictionary: `root` is the whole
context, `program` its name, and `values` its values. Those of the operator are at the top level.
*/}}

{{/* The name of the release's objects. The longest suffix still fits. */}}
{{- define "shoal.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "shoal.suffix" -}}
{{- if ne .program "operator" }}-{{ .program }}{{ end -}}
{{- end -}}

{{/* The name of a program's objects. */}}
{{- define "shoal.name" -}}
{{ include "shoal.fullname" .root }}{{ include "shoal.suffix" . }}
{{- end -}}

{{/* Each program has a name of its own, so no selector of one finds pods of another. */}}
{{- define "shoal.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}{{ include "shoal.suffix" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "shoal.labels" -}}
{{ include "shoal.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{/* Ends with the labels, to which a template may add some. */}}
{{- define "shoal.metadata" -}}
name: {{ include "shoal.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "shoal.labels" . | nindent 2 }}
{{- end -}}

{{- define "shoal.serviceAccount" -}}
{{- with .values.serviceAccount -}}
{{- if .create -}}
{{- default (include "shoal.name" $) .name -}}
{{- else -}}
{{- required "serviceAccount.name is required without serviceAccount.create" .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What binds a role of the program's name to it. `kind` is that of the role. */}}
{{- define "shoal.binding" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ include "shoal.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "shoal.serviceAccount" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "shoal.image" -}}
{{- with .root.Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.root.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A rule of egress to the API server, whose addresses are not known. */}}
{{- define "shoal.toApiServer" -}}
- ports:
    {{- range .root.Values.networkPolicy.apiServerPorts }}
    - protocol: TCP
      port: {{ . }}
    {{- end }}
{{- end -}}
