{{/*
Names and labels. The rules are upstream's chart's, so that names and selectors stay what they are
when its release is upgraded to this chart (with nameOverride, see docs/install.md).
*/}}
{{- define "provisioner.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "provisioner.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if contains $name .Release.Name }}{{ $full = .Release.Name }}{{ end -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "provisioner.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* What the DaemonSet selects its pods by. It cannot be changed once it is installed. */}}
{{- define "provisioner.selector" -}}
app.kubernetes.io/name: {{ include "provisioner.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "provisioner.labels" -}}
helm.sh/chart: {{ include "provisioner.chart" . }}
{{ include "provisioner.selector" . }}
app.kubernetes.io/part-of: local-volume-provisioner
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "provisioner.controllerName" -}}
{{- printf "%s-controller" (include "provisioner.name" . | trunc 52 | trimSuffix "-") -}}
{{- end -}}

{{- define "provisioner.controllerFullname" -}}
{{- printf "%s-controller" (include "provisioner.fullname" . | trunc 52 | trimSuffix "-") -}}
{{- end -}}

{{/* A name of its own: the DaemonSet's selector must not match the controller's pods. */}}
{{- define "provisioner.controllerSelector" -}}
app.kubernetes.io/name: {{ include "provisioner.controllerName" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "provisioner.controllerLabels" -}}
helm.sh/chart: {{ include "provisioner.chart" . }}
{{ include "provisioner.controllerSelector" . }}
app.kubernetes.io/component: controller
app.kubernetes.io/part-of: local-volume-provisioner
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "provisioner.viewerName" -}}
{{- printf "%s-viewer" (include "provisioner.fullname" . | trunc 56 | trimSuffix "-") -}}
{{- end -}}

{{- define "provisioner.snapshotControllerFullname" -}}
{{- printf "%s-snapshot-controller" (include "provisioner.fullname" . | trunc 43 | trimSuffix "-") -}}
{{- end -}}

{{- define "provisioner.snapshotControllerSelector" -}}
app.kubernetes.io/name: snapshot-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "provisioner.snapshotControllerLabels" -}}
helm.sh/chart: {{ include "provisioner.chart" . }}
{{ include "provisioner.snapshotControllerSelector" . }}
app.kubernetes.io/component: snapshot-controller
app.kubernetes.io/part-of: local-volume-provisioner
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "provisioner.serviceAccountName" -}}
{{- $own := ternary (include "provisioner.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{- define "provisioner.controllerServiceAccountName" -}}
{{- $account := (include "provisioner.controllerValues" . | fromYaml).serviceAccount -}}
{{- $own := ternary (include "provisioner.controllerFullname" .) "default" $account.create -}}
{{- default $own $account.name -}}
{{- end -}}

{{/* Of agent and controller, and of cleaning Jobs, which the policy holds to this very name. */}}
{{- define "provisioner.image" -}}
{{- tpl .Values.image . -}}{{ with .Values.imageDigest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* A probe as it is given, over TLS where the endpoints are: list of the probe, and whether. */}}
{{- define "provisioner.probe" -}}
{{- $probe := deepCopy (index . 0) -}}
{{- if and (index . 1) $probe.httpGet -}}
{{- $_ := set $probe "httpGet" (merge $probe.httpGet (dict "scheme" "HTTPS")) -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end -}}

{{/* Asking who may read the metrics. */}}
{{- define "provisioner.reviewRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end -}}

{{- define "provisioner.configName" -}}
{{- printf "%s-config" (include "provisioner.fullname" .) -}}
{{- end -}}

{{/*
The controller's values as YAML: `controller`, over it what upstream's `nodeCleanupController` says
where that is enabled, and the provisioners that are replaced.
*/}}
{{- define "provisioner.controllerValues" -}}
{{- $values := deepCopy .Values.controller -}}
{{- if .Values.nodeCleanupController.enabled -}}
{{- $values = mergeOverwrite $values (deepCopy .Values.nodeCleanupController) -}}
{{- end -}}
{{- $replaced := (include "provisioner.replaced" . | fromYaml).provisioners -}}
{{- $_ := set $values "dynamicProvisioners" (concat $values.dynamicProvisioners $replaced | uniq) -}}
{{- toYaml $values -}}
{{- end -}}
