{{/*
The Deployment of a program. Beside those of _helpers.tpl, it takes `args`; `ports` by name, without those of
metrics and health; and optionally `labels` of the pods, `volumes` and `volumeMounts`, `scaled` if the number of
replicas is not the chart's business, `strategy` of its updates, `fsGroup` of its volumes, and `probe`, the request of all probes of a program without a port for them.
*/}}
{{- define "shoal.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "shoal.metadata" . | nindent 2 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  {{- with .strategy }}
  strategy:
    type: {{ . }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "shoal.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "shoal.labels" . | nindent 8 }}
        {{- with .labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .program }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "shoal.serviceAccount" . }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .root.Values.podSecurityContext | nindent 8 }}
        {{- with .fsGroup }}
        fsGroup: {{ . }}
        {{- end }}
      # Five seconds until no Service sends requests here; then reconciles and requests end within ten, and the operator
      # releases its lease.
      terminationGracePeriodSeconds: 25
      containers:
        - name: {{ .program }}
          image: {{ include "shoal.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            {{- toYaml .args | nindent 12 }}
          lifecycle:
            preStop:
              sleep:
                seconds: 5
          ports:
            {{- range $name, $port := .ports }}
            - name: {{ $name }}
              containerPort: {{ $port }}
            {{- end }}
            - name: metrics
              containerPort: {{ .values.metrics.port }}
            {{- if not .probe }}
            - name: health
              containerPort: {{ .values.health.port }}
            {{- end }}
          # The operator is ready when its webhook serves, with or without the lease; router and API when they know
          # all sandboxes.
          startupProbe:
            httpGet: {{ include "shoal.probe" (dict "path" "/readyz" "probe" .probe) }}
            periodSeconds: 1
            failureThreshold: 300
          readinessProbe:
            httpGet: {{ include "shoal.probe" (dict "path" "/readyz" "probe" .probe) }}
            periodSeconds: 5
          livenessProbe:
            httpGet: {{ include "shoal.probe" (dict "path" "/healthz" "probe" .probe) }}
            periodSeconds: 20
            timeoutSeconds: 5
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- toYaml .root.Values.securityContext | nindent 12 }}
          {{- with .volumeMounts }}
          volumeMounts:
            {{- toYaml . | nindent 12 }}
          {{- end }}
      {{- with .volumes }}
      volumes:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "shoal.placement" . | nindent 6 }}
{{- end -}}

{{/* The request of a probe: `probe` if the program has it, otherwise `path` on the port `health`. */}}
{{- define "shoal.probe" -}}
{{- with .probe -}}
{path: {{ .path }}, port: {{ .port }}, scheme: {{ .scheme }}}
{{- else -}}
{path: {{ .path }}, port: health}
{{- end -}}
{{- end -}}

{{/* The autoscaler of a program that has one. */}}
{{- define "shoal.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "shoal.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "shoal.name" . }}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .values.autoscaling.cpuPercent }}
{{- end -}}

{{/* On which nodes the pods of a program run. */}}
{{- define "shoal.placement" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "shoal.selector" . | nindent 8 }}
  {{- end }}
{{- end -}}
